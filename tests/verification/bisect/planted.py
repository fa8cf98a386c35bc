"""Planted bugs: each breaks one thing of the compiler the way such things break, in a model that uses it."""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from tvm import tirx

from tests.passes.stages import stage
from tvm_ext import ops
from tvm_ext.byoc.systolic.lowering import epilogue as lowering_epilogue
from tvm_ext.byoc.systolic.simulation import vector
from tvm_ext.core.graph.relax_graph import iter_groups
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import Pass
from tvm_ext.core.recipe import Layouts, Recipe
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.passes import pipeline
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.passes.lowering.group_operations import GroupOperations
from tvm_ext.passes.simplification import (
    eliminate_common_subexpressions,
    fold_batch_norm,
    fold_constants,
    recognize_attention,
)
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.reduction import Reduction
from tvm_ext.schedules.recipes.softmax import Softmax

from . import models
from .user_passes import DropRelu

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    """One planted bug.

    Attributes:
        name: of the test; what: for the table.
        kind, culprit: what bisect has to name.
        model: makes the model.
        plant: breaks it.
        options: of the compile; with `log`, a tuning log is written first.
        layer: the layer besides the recipe, where a search of every kind narrows it down.
    """

    name: str
    what: str
    kind: str
    culprit: str
    model: Callable[[], onnx.ModelProto]
    plant: Plant
    options: Mapping[str, Any] = field(default_factory=dict)
    log: Callable[[onnx.ModelProto], Sequence[Record]] | None = None
    layer: str = ""

    def prepared(self, folder: Path) -> tuple[onnx.ModelProto, dict[str, Any], str]:
        """The model, the compile options, and the culprit: of a record "FILE:LINE"."""
        proto, options = self.model(), {"threads": 1, "records": None, **self.options}
        if self.log is None:
            return proto, options, self.culprit
        path = folder / "log.json"
        path.write_text("# a comment\n" + "".join(row.to_row() + "\n" for row in self.log(proto)))
        return proto, {**options, "records": str(path)}, self.culprit.replace("LOG", str(path))


# ------------------------------------------------------------ passes
def _shift_negated(patch: pytest.MonkeyPatch) -> None:
    right = fold_batch_norm.channel_constant
    patch.setattr(fold_batch_norm, "channel_constant", lambda vector, *rest: right(-vector, *rest))


def _constants_by_shape(patch: pytest.MonkeyPatch) -> None:
    keys = eliminate_common_subexpressions._Keys
    patch.setattr(keys, "_constant", lambda self, expr: ("constant", tuple(expr.value.shape)))


def _scale_inverted(patch: pytest.MonkeyPatch) -> None:
    right = recognize_attention._factor

    def factor(call: Any) -> float | None:
        value = right(call)
        return None if value is None else 1.0 / value

    patch.setattr(recognize_attention, "_factor", factor)


def from_package(*passes: type[Pass]) -> Plant:
    """Passes that another package brings."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        entries = [
            types.SimpleNamespace(value=f"package:{step.__name__}", load=lambda step=step: step) for step in passes
        ]
        patch.setattr(pipeline, "entry_points", lambda: entries)

    return plant


# ------------------------------------------------------------ recipes
def with_numbers(function: tirx.PrimFunc, change: Callable[[float], float]) -> tirx.PrimFunc:
    """A kernel with other floating-point constants."""

    def changed(number: tirx.FloatImm) -> tirx.FloatImm:
        return tirx.FloatImm(str(number.ty.dtype), change(float(number.value)))

    body = tvm_ffi.structural_map(function.body, (tirx.FloatImm, changed))
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _wrong_numbers(
    recipe: type[Recipe], change: Callable[[float], float], when: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = recipe.compute

        def compute(self: Recipe, match: Any, config: Any, layouts: Any) -> tirx.PrimFunc:
            function = right(self, match, config, layouts)
            return with_numbers(function, change) if when(config) else function

        patch.setattr(recipe, "compute", compute)

    return plant


def _taps_transposed(patch: pytest.MonkeyPatch) -> None:
    right = Conv2dDepthwise.layouts

    def layouts(self: Recipe, match: Any, config: Any, offered: Any) -> Layouts:
        chosen = right(self, match, config, offered)
        at = match.group.params.index(match.weight)
        swapped = Layout((0, 1, 3, 2), chosen.params[at].block)
        return Layouts((*chosen.params[:at], swapped, *chosen.params[at + 1 :]), chosen.output)

    patch.setattr(Conv2dDepthwise, "layouts", layouts)


# ------------------------------------------------------------ weights
def _outputs_swapped(patch: pytest.MonkeyPatch) -> None:
    right = PackedWeight.pack

    def pack(self: PackedWeight, array: np.ndarray) -> np.ndarray:
        if array.shape == (13, 5):  # of the second layer only
            array = array[:, [1, 0, 2, 3, 4]]
        return right(self, array)

    patch.setattr(PackedWeight, "pack", pack)


def _transpose_as_reshape(patch: pytest.MonkeyPatch) -> None:
    right = ops.of("relax.permute_dims")
    wrong = replace(right, numpy=lambda call, values, dtype: np.reshape(values[0], values[0].shape[::-1]))
    patch.setattr(fold_constants, "of", lambda name: wrong if name == "relax.permute_dims" else ops.of(name))


# ------------------------------------------------------------ records
def _rows(proto: onnx.ModelProto) -> list[Record]:
    """A record for each convolution, of configurations that no other kernel has."""
    machine, rows = Machine.detect(None, 1), []
    for gvar, function in iter_groups(stage(proto, GroupOperations, threads=1).mod):
        group = Group(gvar.name_hint, function)
        recipe, match = next((r, m) for r, m in matches(group, machine) if r.name == Conv2dNCHWc.name)
        used = [recipe.default(match, machine)["tile_p"], *(row.config["tile_p"] for row in rows)]
        legal = [c for c in recipe.points(match, machine) if math.isfinite(recipe.cost(match, c, machine))]
        config = next(c for c in legal if c["tile_p"] not in used)
        rows.append(
            Record(TaskKey.of_group(group), recipe.name, recipe.version, config, (1e-5,),
                   machine=machine_fields(machine), session=f"session {len(rows)}")
        )  # fmt: skip
    return rows


def _is_first(config: Mapping[str, Any]) -> bool:
    return dict(config) == _rows(models.two_convolutions())[0].config


def _does_not_schedule(patch: pytest.MonkeyPatch) -> None:
    right = Conv2dNCHWc.schedule

    def schedule(self: Recipe, sch: Any, match: Any, config: Any, machine: Any) -> None:
        if _is_first(config):
            raise ValueError(f"no {config['tile_p']} registers are left")
        right(self, sch, match=match, config=config, machine=machine)

    patch.setattr(Conv2dNCHWc, "schedule", schedule)


# ------------------------------------------------------------ offloading
def _relu_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(lowering_epilogue._WRITERS, "relax.nn.relu", lambda self, operation: None)


def _gelu_does_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(vector._OPERATIONS, "gelu", lambda instruction, words, operand: None)


def _add_wraps_rows(patch: pytest.MonkeyPatch) -> None:
    right = vector._OPERATIONS["add"]
    patch.setitem(vector._OPERATIONS, "add", lambda i, words, operand: right(i, words, np.roll(operand, 1, axis=-1)))


_SYSTOLIC = {"offload": "systolic", "offload_options": {"when": "always"}}

BUGS: dict[str, Bug] = {bug.name: bug for bug in (
    Bug("shift", "fold-batch-norm adds the shift with the wrong sign", "pass", "fold-batch-norm", models.conv_bn,
        _shift_negated),
    Bug("same-weights", "equal shapes pass for equal constants", "pass", "eliminate-common-subexpressions",
        models.two_branches, _constants_by_shape),
    Bug("scale", "attention is scaled by the inverse", "pass", "recognize-attention", models.attention,
        _scale_inverted),
    Bug("user-pass", "a user's pass, from an entry point, drops ReLUs", "pass", "drop-relu", models.two_dense,
        from_package(DropRelu)),
    Bug("winograd", "sums of the Winograd kernel begin at 0.01", "recipe", "conv2d_winograd", models.convolutions,
        _wrong_numbers(Conv2dWinograd, lambda n: n if n else 0.01)),
    Bug("mean", "a mean divides by one element too few", "recipe", "reduction", models.pooled,
        _wrong_numbers(Reduction, lambda n: n * 196 / 195)),
    Bug("depthwise", "taps of a depthwise weight are read transposed", "recipe", "conv2d_depthwise",
        lambda: models.convolutions(16, 16, 7), _taps_transposed),
    Bug("softmax", "a constant of the softmax kernel is off by a thousandth", "recipe", "softmax", models.softmax,
        _wrong_numbers(Softmax, lambda n: n * 1.001)),
    Bug("packing", "two outputs of one packed weight are swapped", "recipe", "dense", models.two_dense,
        _outputs_swapped, layer="fused_matmul_add"),
    Bug("folding", "a folded transpose of a weight is a reshape", "pass", "fold-constants", models.two_dense,
        _transpose_as_reshape),
    Bug("record", "one configuration of a kernel makes wrong numbers", "record", "LOG:2", models.two_convolutions,
        _wrong_numbers(Conv2dNCHWc, lambda n: n if n else 0.1, _is_first), log=_rows),
    Bug("broken-record", "one configuration of a kernel cannot be scheduled", "record", "LOG:2",
        models.two_convolutions, _does_not_schedule, log=_rows),
    Bug("lowering", "a back end's lowering forgets the ReLU of an epilogue", "offload", "fc1", models.two_dense,
        _relu_forgotten, _SYSTOLIC),
    Bug("driver", "a back end's driver does nothing for gelu", "offload", "fc1", lambda: models.two_dense(True),
        _gelu_does_nothing, _SYSTOLIC),
)}  # fmt: skip
