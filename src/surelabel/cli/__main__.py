"""`python -m surelabel.cli` is `surelabel`."""

import sys

from surelabel.cli import main

sys.exit(main())
