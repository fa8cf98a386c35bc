"""The committed table: how each model comes out, here and in TVM as shipped, and the machine it was made on."""

import pathlib
from collections.abc import Mapping
from typing import Any

from tests.oracles.outcome import kind_of
from tests.oracles.table import markdown, read_rows, write_rows

PATH = pathlib.Path(__file__).with_name("results.json")
Row = dict[str, Any]
Rows = dict[str, dict[str, Row]]
"""Model -> contender -> row."""

_HEAD = (
    "model", "inputs", "ours", "error", "onnxruntime's own", "nodes", "kernels", "generic", "compile", "TVM as shipped",
)  # fmt: skip
_NOTES = """
* error: largest difference from onnxruntime with graph optimizations off, of an output's range; integers are equal.
* onnxruntime's own: what its graph optimizations change of its outputs.
* generic: kernels that no recipe took.
* title-encoder rounds activations to 8 bits 32 times on its way (DynamicQuantizeLinear): a last bit becomes a step of
  1/255 of the range, and what follows differs by more than rounding. Between these roundings it agrees within 1e-5 of
  the range, and its integers bit for bit: `test_pieces_of_a_requantizing_model`.
"""


def read_table(path: pathlib.Path = PATH) -> Rows:
    """The rows; none if there is no file."""
    rows = read_rows(path)
    rows.pop("machine", None)
    return rows


def write_table(rows: Rows, sizes: Mapping[str, str], machine: str, path: pathlib.Path = PATH) -> None:
    """Write the table, one model a line, and as Markdown beside it.

    Args:
        rows: of all models.
        sizes: model -> shapes of its inputs, as text.
        machine: in words.
    """
    write_rows(path, {"machine": machine, **rows}, _markdown(rows, sizes, machine))


def _markdown(rows: Rows, sizes: Mapping[str, str], machine: str) -> str:
    passed = sum(row.get("ours", {}).get("outcome") == "pass" for row in rows.values())
    shipped = sum(row.get("stock", {}).get("outcome") == "pass" for row in rows.values())
    lines = markdown(_HEAD, (_cells(name, sizes.get(name, ""), row) for name, row in rows.items()))
    title = f"# Trained models\n\nMade by `python -m tests.real_models.refresh`: {machine}.\n"
    count = f"{passed} of {len(rows)} agree with onnxruntime here, {shipped} in TVM as shipped."
    notes = [f"* {name} magnifies rounding errors: {row['ours']['note']}." for name, row in rows.items()
             if row.get("ours", {}).get("note")]  # fmt: skip
    return "\n".join([title, count, "", lines.rstrip(), _NOTES.rstrip(), *notes, ""])


def _cells(name: str, size: str, row: Mapping[str, Row]) -> list[str]:
    ours, stock = row.get("ours", {}), row.get("stock", {})
    numbers = [str(ours.get(key, "")) for key in ("nodes", "kernels", "generic")]
    seconds = f"{ours['compile seconds']:.1f} s" if "compile seconds" in ours else ""
    return [name, size, _text(ours.get("outcome", "")), _error(ours, "error"), _error(ours, "onnxruntime's own"),
            *numbers, seconds, _text(stock.get("outcome", ""))]  # fmt: skip


def _error(row: Row, key: str) -> str:
    return f"{row[key]:.1e}" if key in row else ""


def _text(outcome: str) -> str:
    return outcome.replace("|", "/") if kind_of(outcome) != "pass" else "pass"
