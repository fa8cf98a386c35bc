"""The committed tables: JSON with a line for each row, and Markdown beside it."""

import argparse
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def read_rows(path: pathlib.Path) -> dict[str, Any]:
    """The rows; none if there is no file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_rows(path: pathlib.Path, rows: Mapping[str, Any], summary: str = "") -> None:
    """Write the rows, and what they say, as Markdown."""
    path.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(rows[key])}" for key in rows) + "\n}\n")
    if summary:
        path.with_suffix(".md").write_text(summary)


def markdown(head: Sequence[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table, lines that end in a newline."""
    lines = [f"| {' | '.join(map(str, cells))} |\n" for cells in (head, *rows)]
    return "".join([lines[0], "|---" * len(head) + "|\n", *lines[1:]])


def versions() -> str:
    """Of what a table was made with."""
    import onnx
    import onnxruntime
    import tvm

    return f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, TVM {tvm.__version__}"


def host() -> str:
    """The machine that a table was made on."""
    from tvm_ext.runtime.pool.threads import available_cores
    from tvm_ext.verification.environment import cpu_name

    return f"{cpu_name()}, {available_cores()} cores"


def parser_of(package: str, about: str | None, workers: int = 2) -> argparse.ArgumentParser:
    """A parser of what all refreshes take: `--workers` and `--dry-run`."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=about)
    parser.add_argument("--workers", type=int, default=workers, help="processes side by side")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    return parser
