"""Kernels on tiles with a part left out, or done elsewhere, to see what it takes: most compute
something else."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tvm_ext.schedules.amx.blocks import Blocks
from tvm_ext.schedules.amx.result import TileResult
from tvm_ext.schedules.amx.tile_copy import TileCopy
from tvm_ext.schedules.amx.tile_products import Tiles

_note = TileResult.note


def _nothing(self: Any, *args: Any) -> None:
    """In the place of a method that adds statements."""


def _note_and_write(self: TileResult, *args: Any) -> None:
    _note(self, *args)
    self.rest()
    self.done()


#: What is left out, or changed -> (class, name) -> what stands there.
ABLATIONS: Mapping[str, Mapping[tuple[type, str], Any]] = {
    "no prefetch": {(Blocks, "prefetches"): property(lambda self: False)},
    "epilogue behind the tile": {
        (TileResult, "some"): _nothing,
        (TileResult, "note"): _note_and_write,
    },
    "no epilogue": {(TileResult, "some"): _nothing, (TileResult, "rest"): _nothing},
    "no products": {(Tiles, "multiply"): _nothing},
    "no tile loads": {(Tiles, "load"): _nothing},
    "no copy": {(TileCopy, "write"): _nothing},
}


@contextmanager
def without(what: str) -> Iterator[None]:
    """Kernels that are built meanwhile are those of :data:`ABLATIONS`; whole ones of ""."""
    with ExitStack() as stack:
        for (owner, name), value in ABLATIONS.get(what, {}).items():
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
