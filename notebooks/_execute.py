"""Executes notebooks and writes them back with their outputs, tidily.

    python notebooks/_execute.py                              # all, with the real budget: half an hour, all alone
    python notebooks/_execute.py write_a_template --small     # one, as the tests do; outputs are not written back

Each runs in a temporary folder with the files `_*.py` beside it, so that nothing it writes stays here.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parent
#: The first cell of a notebook reads it: "small" or nothing.
BUDGET = "TVM_EXT_NOTEBOOK_BUDGET"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def names():
    """Notebooks of this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name):
    """A notebook as it is committed."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def execute(name, folder, small):
    """The notebook with new outputs, run in a folder.

    Raises:
        CellExecutionError: a cell failed.
    """
    for path in FOLDER.glob("_*.py"):
        shutil.copy(path, folder)
    notebook = tidy(read(name))
    environment = {**os.environ, BUDGET: "small" if small else "", "TVM_EXT_CACHE": str(Path(folder, "cache"))}
    with tempfile.TemporaryDirectory() as sockets:  # files: of free ports, looked for before they are bound, one may go
        at = Config(ConnectionFileMixin={"transport": "ipc", "ip": os.path.join(sockets, "kernel")})
        client = NotebookClient(
            notebook, timeout=300 if small else 3600, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": str(folder)}}, config=at,
        )  # fmt: skip
        client.execute(env=environment)
    return tidy(notebook)


def tidy(notebook):
    """The notebook without what differs from one editor or run to the next: metadata, numbers of cells."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"cell-{number:02}"
    return notebook


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--small", action="store_true", help="the budget of the tests; nothing is written")
    args = parser.parse_args()
    for name in args.names or names():
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(name, folder, args.small)
        if not args.small:
            nbformat.write(notebook, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
