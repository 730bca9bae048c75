"""`python -m surelabel` is `surelabel`."""

import sys

from surelabel.cli import main

sys.exit(main())
