"""`python -m geomxp` is the command `geomxp`."""

import sys

from .cli import main

sys.exit(main())
