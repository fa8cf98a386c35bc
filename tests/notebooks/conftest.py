"""The scripts of notebooks/ are imported by bare names, as a notebook's own folder lets them be."""

import pathlib
import sys

FOLDER = str(pathlib.Path(__file__).resolve().parents[2] / "notebooks")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
