"""The simulated systolic array passes the kit, whatever its settings."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_ext.byoc import backend_named
from tvm_ext.byoc.testing import check_backend


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": "int8"}, {"rows": 3, "cols": 5, "dataflow": "os"}, {"rows": 4, "cols": 4, "dataflow": "is"},
     {"dtype": "int8", "rows": 4, "cols": 2, "dataflow": "ws"}],
    ids=["default", "int8", "output-stationary", "input-stationary", "int8-small"],
)  # fmt: skip
def test_it_passes(options: dict[str, Any]) -> None:
    report = check_backend(backend_named("systolic"), options)
    assert report.ok, "\n".join(f"{row.check}-{row.about}: {row.detail}" for row in report.failed)
    exact = [row for row in report.rows if row.check == "numbers" and row.about.startswith("int8-conv")]
    assert exact and all(row.detail.startswith("4 of 6") is (options.get("dtype") == "int8") for row in exact)
