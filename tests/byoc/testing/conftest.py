"""The back end of `tvm-ext new`, as a module of its own, which other processes can import."""

import importlib
import sys
from collections.abc import Iterator

import pytest

from tvm_ext.byoc import Backend
from tvm_ext.cli import main


@pytest.fixture(scope="package")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """The template's back end."""
    folder = tmp_path_factory.mktemp("kit")
    assert main(["new", "backend", "kit_chip", "--directory", str(folder)]) == 0
    sys.path.insert(0, str(folder / "kit_chip"))
    try:
        yield importlib.import_module("kit_chip").BACKEND
    finally:
        sys.path.remove(str(folder / "kit_chip"))
