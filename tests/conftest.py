"""For all tests: estimates at the rates of described machines, so that no result depends on what was measured where."""

import os

os.environ.setdefault("TVM_EXT_RATES", "typical")
