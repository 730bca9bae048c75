"""`python -m surelabel` is `surelabel`: it imports nothing from the current folder, which may be a stranger's run."""

import os
import sys

if sys.path[0] == os.getcwd():
    del sys.path[0]

from surelabel.cli import main

sys.exit(main())
