"""`python -m geomxp` is the command `geomxp`."""

import sys

from .cli.main import main

sys.exit(main())
