"""The table of operators: that rows hold together, and questions whose answers differed from place to place."""

import inspect

import onnx
import pytest
import tvm

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend.checks.operators import INTERNAL
from tvm_ext.frontend.converters import FOREIGN
from tvm_ext.ops import Kind, Operator, of, operators
from tvm_ext.ops.table import register
from tvm_ext.verification.magnitude import _LENGTHS, _MAGNITUDES

ROWS = operators()
TYPES = {"floats", "numbers", "comparison", "logic", "conversion", "quantization"}


def test_names_are_those_of_operators() -> None:
    standard = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
    known = standard | set(FOREIGN["com.microsoft"]) | set(INTERNAL)
    assert {name for row in ROWS for name in row.onnx} <= known
    assert all(tvm.ir.Op.get(name) is not None for row in ROWS for name in row.relax)


def test_classes_are_known() -> None:
    assert {row.types for row in ROWS} == TYPES
    assert {row.rounding for row in ROWS} == set(_LENGTHS)
    assert {row.magnitude for row in ROWS} == set(_MAGNITUDES)
    assert {row.jump for row in ROWS} == {"", "whole", "quantized", "step", "angle"}
    assert {row.shape_arithmetic for row in ROWS} == {"", "elementwise", "not larger"}
    assert {row.int8 for row in ROWS} == {"", "anchor", "moved", "between", "only"}


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_elementwise], ids=lambda row: row.names)
def test_a_scalar_expression_takes_the_attributes_of_its_row(row: Operator) -> None:
    assert set(row.attributes) <= set(inspect.signature(row.scalar).parameters)
    assert row.row_rule is not None and row.relax


def test_a_name_has_one_row() -> None:
    with pytest.raises(OptionError, match=r"'relax\.add' has a row already"):
        register(Operator("test.other relax.add"))
    assert of("test.other") == Operator()


def test_what_only_moves_elements_is_exact_and_passes_roundings_on() -> None:
    moves = [row for row in ROWS if row.keeps_elements]
    assert {"relax.stack", "relax.nn.batch_flatten", "DepthToSpace"} <= {n for row in moves for n in row.names.split()}
    assert all(row.rounding == "exact" and row.passes_rounding and not row.jump for row in moves)


@pytest.mark.parametrize("name", ["CastLike", "Floor", "Sign", "Less", "And", "Scatter", "ReverseSequence"])
def test_results_that_are_no_sums_are_exact(name: str) -> None:
    assert of(name).rounding == "exact"


@pytest.mark.parametrize("name", ["Sum", "Mean", "Swish", "relax.nn.adaptive_avg_pool3d", "SpaceToDepth"])
def test_parts_of_what_passes_roundings_on_do_so_too(name: str) -> None:
    assert of(name).passes_rounding


@pytest.mark.parametrize("name", ["ThresholdedRelu", "Shrink", "CastLike"])
def test_a_threshold_is_a_step(name: str) -> None:
    assert of(name).jump == "step"


def test_a_cut_off_number_is_whole_as_a_rounded_one_is() -> None:
    assert {of(f"relax.{name}").jump for name in ("floor", "ceil", "round", "trunc")} == {"whole"}


def test_views_are_other_shapes_of_the_same_memory() -> None:
    views = {name for row in ROWS if row.kind is Kind.VIEW for name in row.relax}
    assert views == {f"relax.{n}" for n in ("reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims")}
