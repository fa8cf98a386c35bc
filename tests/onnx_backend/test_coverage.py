"""docs/onnx_coverage.md says what the registry of converters and the committed outcomes say."""

from tvm_ext.frontend.converters import CONVERTERS

from .cases import all_cases
from .coverage import PATH, coverage
from .table import read_table


def test_the_document_is_what_would_be_written_now() -> None:
    text = coverage(read_table(), all_cases())
    assert PATH.read_text() == text, "run python -m tests.onnx_backend.refresh --only nothing"


def test_every_own_converter_is_in_it_with_what_it_does() -> None:
    standard = PATH.read_text().partition("## Of the domain")[0].splitlines()
    lines = {line.split("|")[1].strip(): line for line in standard if line.startswith("| ")}
    assert set(CONVERTERS) - set(lines) <= {"Scatter", "Upsample"}  # gone from the newest opset
    for operator in set(CONVERTERS) & set(lines):
        assert len(lines[operator].split("|")[6].strip()) > 15
