"""Calls a function in this process: `python child.py MODULE FUNCTION '[arguments]'` prints a line
of JSON, what it returns. Nothing is imported before, so that imports are part of what is timed."""

import importlib
import json
import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])
    module, function, arguments = sys.argv[1:]
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    print(json.dumps(result), flush=True)
