"""Einsum against numpy, and what it becomes: matmuls in the order of least work."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings, op_name
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.importer import import_model
from tvm_ext.frontend.reading.reader import read_model

SIZES = {letter: 2 + i % 4 for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
EQUATIONS = [
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ki", "bij,bjk->bik", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk,kl->il",
    "ab,bc,cd,de,ef,fg->ag", "ii->i", "ii", "iji->j", "iiji->ji", "iij,jkk->ik", "ij->ji", "ij->", "i,j->ij",
    "ij,ij->ij", "ij,ij", "bij,bij->b", "a,b,c,d,e,f->", "ab,cd->", "bhwij,hj->bwi", "ij,i->ij", "abc,ab->ac", "ba",
    " i j , j k -> k i", "i->i", "i,i->", "bij,jk,b->ik",
]  # fmt: skip


def einsum(equation: str, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(np.einsum("".join(equation.split()), *operands, optimize=len(operands) > 6))


def equation_of(equation: str, *shapes: tuple[int, ...], dtype: str = "float32") -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [value(f"x{i}", shape, kind) for i, shape in enumerate(shapes)]
    result = einsum(equation, [np.zeros(shape) for shape in shapes]).shape
    names = " ".join(f"x{i}" for i in range(len(shapes)))
    return model([node("Einsum", names, "y", equation=equation)], inputs, [value("y", result, kind)])


def check(equation: str, *shapes: tuple[int, ...], dtype: str = "float32") -> None:
    rng = np.random.default_rng([len(equation), *map(len, shapes)])
    kind = np.dtype(dtype)
    draw = rng.standard_normal if kind.kind == "f" else lambda shape: rng.integers(-3, 4, shape)
    operands = [np.asarray(draw(shape), kind) for shape in shapes]
    wide = [x.astype("float64" if kind.kind == "f" else "int64") for x in operands]
    expected = einsum(equation, wide)
    size = einsum(equation, [np.abs(x) for x in wide])  # rounding is in proportion to it
    compiled = tvm_ext.compile(equation_of(equation, *shapes, dtype=dtype), cache=False, threads=1)
    got = compiled.run({f"x{i}": x for i, x in enumerate(operands)})["y"]
    assert got.dtype == kind and got.shape == expected.shape
    unit = np.finfo(kind).eps if kind.kind == "f" else 0
    assert (np.abs(got - expected) <= 16 * unit * size).all()


def shapes_of(equation: str) -> list[tuple[int, ...]]:
    return [tuple(SIZES[c] for c in part) for part in "".join(equation.split()).split("->")[0].split(",")]


#: Those of other types too: products of two and of more operands, diagonals, a transpose, a sum.
OF_ALL_TYPES = [
    "ij,jk->ik", "bqhd,bkhd->bhqk", "ab,bc,cd,de,ef,fg->ag", "iij,jkk->ik", "ij->ji", "ij->", "bij,jk,b->ik",
]  # fmt: skip


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [*((equation, "float32") for equation in EQUATIONS),
     *((equation, dtype) for equation in OF_ALL_TYPES for dtype in ("float64", "float16", "int32", "int64"))],
)  # fmt: skip
def test_equations(equation: str, dtype: str) -> None:
    check(equation, *shapes_of(equation), dtype=dtype)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(3, 4, 2, 5), (3, 4, 5, 2)]), ("...ij,...jk->...ik", [(1, 4, 2, 5), (3, 1, 5, 2)]),
        ("...i->...", [(2, 3, 4)]), ("b...d,d->b...", [(2, 3, 4, 5), (5,)]), ("...ii->...i", [(2, 3, 3)]),
        ("...a,...a", [(2, 3), (2, 3)]), ("i...", [(3, 2)]), ("...,...", [(2, 3), (1, 3)]),
        ("bij,bjk->bik", [(1, 1, 2), (5, 2, 1)]), ("ij,jk->ik", [(3, 1), (4, 5)]), ("ij,ij->", [(1, 4), (3, 1)]),
    ],
    ids=str,
)  # fmt: skip
def test_ellipses_and_dimensions_of_one(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(equation, *shapes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(4, 0), (0, 4)]), ("ij,jk->ik", [(0, 3), (3, 4)]), ("ij->", [(0, 3)]), ("ii->i", [(0, 0)]),
        ("i,j->ij", [(0,), (3,)]), ("...i->...", [(2, 0)]),
    ],
    ids=str,
)  # fmt: skip
def test_of_no_elements(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(equation, *shapes)


def operators(equation: str, *shapes: tuple[int, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """Operators that an equation becomes, with the shapes of their results."""
    imported = import_model(read_model(equation_of(equation, *shapes)), CompileOptions())
    bindings = main_bindings(imported.mod)
    return [
        (op_name(b.value).removeprefix("relax."), tuple(map(int, b.var.ty.shape))) for b in bindings if op_name(b.value)
    ]


@pytest.mark.parametrize(
    ("equation", "names"),
    [
        ("ij,jk->ik", ["matmul"]), ("bij,bjk->bik", ["matmul"]), ("ij,kj->ik", ["permute_dims", "matmul"]),
        ("ij,jk->ki", ["permute_dims", "permute_dims", "matmul"]), ("ij,ij->ij", ["multiply"]),
        ("ij->ji", ["permute_dims"]),
        ("bqhd,bkhd->bhqk", ["permute_dims", "permute_dims", "matmul"]), ("ij->i", ["sum"]),
    ],
)  # fmt: skip
def test_common_forms_are_the_matmul_that_they_are(equation: str, names: list[str]) -> None:
    assert [name for name, _ in operators(equation, *shapes_of(equation))] == names


@pytest.mark.parametrize(
    ("shapes", "first"),
    [([(2, 100), (100, 100), (100, 100)], (2, 100)), ([(100, 100), (100, 100), (100, 2)], (100, 2))],
)
def test_the_order_is_that_of_least_work(shapes: list[tuple[int, ...]], first: tuple[int, ...]) -> None:
    products = [shape for name, shape in operators("ij,jk,kl->il", *shapes) if name == "matmul"]
    assert len(products) == 2 and sorted(first) == sorted(products[0])


def test_twenty_operands_are_joined_pair_by_pair() -> None:
    letters = "abcdefghijklmnopqrstu"
    equation = ",".join(a + b for a, b in itertools.pairwise(letters)) + "->au"
    check(equation, *shapes_of(equation))


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [("i...->i", [(2, 3)], "no '...' in the result"), ("ij->ii", [(2, 3)], "once each")],
)
def test_refusals_say_what_is_wrong(equation: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    inputs = [value(f"x{i}", shape) for i, shape in enumerate(shapes)]
    names = " ".join(f"x{i}" for i in range(len(shapes)))
    proto = model([node("Einsum", names, "y", equation=equation)], inputs, [value("y", None)])
    with pytest.raises(UnsupportedError, match=reason):
        tvm_ext.compile(proto, cache=False)
