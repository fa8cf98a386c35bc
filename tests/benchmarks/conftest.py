"""The scripts of benchmarks/ import each other by bare names, as Python lets scripts do: so do their tests."""

import pathlib
import sys

FOLDER = str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
