"""Matmul on tile registers: machine code against its plain twin, and both against float64."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.amx.recipe import is_legal
from tvm_ext.schedules.recipes.dense_amx import DenseAmx

from ...emulation.execution import HOST, MACHINE
from ..amx_cases import R_SCALE, X_SCALE, Y_SCALE, arrays_of, dense_group, points, run_tiles, run_twin
from ..kernels import matched

#: rows x K, K x N
CASES: dict[str, Any] = {
    "whole tiles": ((32, 64), (64, 64)),
    "128 cubed": ((128, 128), (128, 128)),
    "one row": ((1, 512), (512, 100)),
    "17 rows, odd columns": ((17, 128), (128, 33)),
    "three columns": ((5, 64), (64, 3)),
    "prime depth": ((19, 37), (37, 47)),
    "short depth": ((40, 12), (12, 20)),
    "one number": ((1, 1), (1, 1)),
    "leading dimensions": ((2, 3, 7, 96), (96, 50)),
}
TYPES = {"bf16": (("bfloat16", "bfloat16"), 0), "u8": (("uint8", "int8"), 121), "s8": (("int8", "int8"), -7)}


def check(case: str, kind: str, rng: np.random.Generator, residual: bool = True) -> None:
    dtypes, zero = TYPES[kind]
    group = dense_group(*CASES[case], dtypes, zero, residual)
    arrays = arrays_of(group, rng)
    twin = run_twin(DenseAmx, group, arrays)
    got, amx = run_tiles(DenseAmx, group, arrays)
    assert got.tobytes() == twin.tobytes()
    amx.assert_entered({"bf16": "tdpbf16ps", "u8": "tdpbusd", "s8": "tdpbssd"}[kind])
    x, w, b, *rest = (a.astype("float64") for a in arrays)
    factor = 1.0 if kind == "bf16" else X_SCALE * rest.pop(0)
    exact = ((x - zero) @ w) * factor + b + sum((r if kind == "bf16" else (r - 3) * R_SCALE) for r in rest)
    exact = np.maximum(exact, 0)
    if kind == "bf16":
        assert np.all(np.abs(got.astype("float64") - exact) <= 2.0**-8 * exact + 1e-5 * (abs(x) @ abs(w) + abs(b)))
        return
    limits = np.iinfo(group.dtype)
    off = np.abs(got.astype("float64") - np.clip(np.round(exact / Y_SCALE) + 5, limits.min, limits.max))
    assert off.max() <= 1 and np.mean(off > 0) < 0.002


#: A geometry in a type or two: what the types differ in are steps of the depth, so that its edges are in both widths.
SHORT = [("17 rows, odd columns", "bf16"), ("prime depth", "bf16"), ("leading dimensions", "s8"), ("short depth", "u8")]
LONG = [
    ("whole tiles", "bf16"), ("128 cubed", "u8"), ("one row", "s8"), ("three columns", "u8"), ("prime depth", "s8"),
    ("one number", "bf16"), ("one number", "u8"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "kind"), [*SHORT, *(pytest.param(*each, marks=pytest.mark.long) for each in LONG)])
def test_machine_code_is_its_twin(case: str, kind: str, rng: np.random.Generator) -> None:
    check(case, kind, rng)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "kind"), [("128 cubed", "bf16"), ("prime depth", "s8"), ("17 rows, odd columns", "bf16")]
)
def test_points_of_the_space_agree(case: str, kind: str, rng: np.random.Generator) -> None:
    dtypes, zero = TYPES[kind]
    group = dense_group(*CASES[case], dtypes, zero)
    arrays = arrays_of(group, rng)
    match = matched(DenseAmx(), group, MACHINE.with_threads(2))
    (kind_of_image, image), tried = next(iter(match.images.items())), 0
    for config in points(kind_of_image, image.blocks):
        if is_legal(image, config):
            got, _ = run_tiles(DenseAmx, group, arrays, config, threads=2)
            assert got.tobytes() == run_twin(DenseAmx, group, arrays, config, threads=2).tobytes(), config
            tried += 1
    assert tried >= 2


def test_what_it_does_not_take() -> None:
    group = dense_group((4, 8), (8, 8))
    miss = DenseAmx().match(group, HOST)
    assert isinstance(miss, Miss) and "amx-tile" in miss.reason
