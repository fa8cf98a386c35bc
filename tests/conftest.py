"""For all tests: estimates at the rates of described machines, so that no result depends on what was measured where.

Files with long tests are run first, so that no process waits at the end for one long file of another.
"""

import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TVM_EXT_RATES", "typical")
# numpy's threads spin for milliseconds behind each product, on cores that another process of the run needs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)  # before -m takes long tests away: the others of their files are no short ones
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by whether the file has a long test; the order within both halves, and within a file, is kept."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the collector of garbage. What modules and tests are made of lives to the end: it never looks there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # trees of sources and of TVM are many objects: 700 at a time takes a sixth
        gc.enable()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs and measurements of a test are kept; it is not made yet."""
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_of_this_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for temporary files that no other process of the run uses, so that a test can say what it left there."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary", numbered=False))
    yield
    tempfile.tempdir = before[1]
    if before[0] is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before[0]
