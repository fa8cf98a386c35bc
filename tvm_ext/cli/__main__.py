"""`python -m tvm_ext.cli` is `tvm-ext`."""

import sys

from .app import main

sys.exit(main())
