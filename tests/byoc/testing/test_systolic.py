"""The simulated systolic array passes the kit, and computes the same whatever its settings."""

from typing import Any

import pytest

from tvm_ext.byoc import backend_named
from tvm_ext.byoc.testing import cases, check_backend


@pytest.mark.long
def test_it_passes() -> None:
    report = check_backend(backend_named("systolic"))
    assert report.ok, "\n".join(f"{row.check}-{row.about}: {row.detail}" for row in report.failed)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"dtype": "int8", "rows": 4, "cols": 2, "dataflow": "ws"}, {"rows": 3, "cols": 5, "dataflow": "os"},
     {"rows": 4, "cols": 4, "dataflow": "is"}, {"dtype": "int8", "rows": 4, "cols": 3, "dataflow": "rs"}],
    ids=["int8", "output-stationary", "input-stationary", "row-stationary"],
)  # fmt: skip
def test_outputs_of_the_models_under_other_settings(options: dict[str, Any]) -> None:
    """Of all models in int8; of a third under each of the other dataflows, and of convolutions of int8 under both."""
    numbers = [case for case in cases(backend_named("systolic"), options) if case.check == "numbers"]
    if (dataflow := options["dataflow"]) != "ws":
        convolutions = [case for case in numbers if case.about.startswith("int8-conv")]
        numbers = [*convolutions, *[case for case in numbers if case not in convolutions][dataflow == "os" :: 3]]
    details = {case.about: case.run() for case in numbers}
    exact = [detail for about, detail in details.items() if about.startswith("int8-conv")]
    assert exact and all(detail.startswith("4 of 6") is (options.get("dtype") == "int8") for detail in exact)
