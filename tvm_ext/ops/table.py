"""The table of operators: a name to its row."""

import contextlib
from collections.abc import Iterator

from ..core.errors import OptionError
from .families import creation, elementwise, moves, products, reductions
from .operator import Operator

_UNKNOWN = Operator()
_ROWS: dict[str, Operator] = {}


def of(name: str) -> Operator:
    """The row of an operator by its name in Relax ("relax.nn.relu") or in ONNX ("Relu"); a row that says nothing of
    an operator that has none."""
    return _ROWS.get(name, _UNKNOWN)


def operators() -> tuple[Operator, ...]:
    """All rows, each once."""
    return tuple({id(row): row for row in _ROWS.values()}.values())


def register(row: Operator) -> None:
    """Put a row into the table.

    Raises:
        OptionError: an operator of it has a row already.
    """
    for name in row.names.split():
        if name in _ROWS:
            raise OptionError(f"operator {name!r} has a row already", fix="take its name out of one of the two rows")
    _ROWS.update(dict.fromkeys(row.names.split(), row))


@contextlib.contextmanager
def registered(row: Operator) -> Iterator[None]:
    """Within it a row stands in the table, in the place of those that its operators have."""
    before = {name: _ROWS.pop(name) for name in row.names.split() if name in _ROWS}
    register(row)
    try:
        yield
    finally:
        for name in row.names.split():
            del _ROWS[name]
        _ROWS.update(before)


for _family in (elementwise, moves, products, reductions, creation):
    for _row in _family.ROWS:
        register(_row)
