"""Tensor specs and metadata: JSON both ways, every wrong field named."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tvm_ext.core.errors import ArtifactError
from tvm_ext.core.machine import Machine
from tvm_ext.runtime.sizes.symbols import Symbol
from tvm_ext.runtime.spec import Metadata, Program, TensorSpec, View, installed_versions

from .programs import metadata

EXAMPLE = metadata(
    [("input ☃", (1, 3, 224, 224), "float32")],
    [("out", (), "int64")],
    [("w", (0, 3), "bfloat16"), ("b", (4,), "bool")],
    parallel=True,
    machine=Machine.detect("x86-64-v2", threads=2).as_dict(),
    report={"passes": [{"name": "fold", "fired": []}]},
)


def test_json_both_ways() -> None:
    assert Metadata.from_json(EXAMPLE.to_json()) == EXAMPLE
    assert "\n" not in EXAMPLE.to_json()


def test_tensor_spec() -> None:
    spec = TensorSpec("x", (2, 3), "float32")
    assert str(spec) == "float32[2, 3]" and spec.nbytes == 24
    assert TensorSpec("x", (), "bfloat16").nbytes == 2
    assert TensorSpec("x", (2, 0), "int64").nbytes == 0
    with pytest.raises(TypeError):
        TensorSpec("x", (), "float31").numpy_dtype  # noqa: B018


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": "2"}, "'threads': '2': int is needed"),
        ({"threads": True}, "'threads': True"),
        ({"parallel": 1}, "'parallel': 1: bool"),
        ({"inputs": {}}, "'inputs'"),
        ({"weights": [["w", [1], "float31", None]]}, "'weights' has the tensor 'w'"),
        ({"weights": [["w", [-1], "float32", None]]}, "0 or more"),
        ({"weights": [["w", [True], "float32", None]]}, "'weights': shape: True"),
        ({"weights": [["w", ["N"], "float32", None]]}, "'weights' has the tensor 'w'"),
        ({"weights": [["w", 3, "float32", None]]}, "'weights': shape: 3"),
        ({"outputs": [["w", [1]]]}, r"'outputs': \['w', \[1\]\]: \[name, shape, dtype, count\] is needed"),
        ({"outputs": [["w", [1], "object", None]]}, "no dtype of numbers"),
        ({"outputs": ["abc"]}, "'outputs': 'abc'"),
        ({"outputs": [None]}, "'outputs': None"),
        ({"machine": {}}, r"machine\['isa'\] is not text"),
        ({"machine": {"isa": "a", "mcpu": "b", "triple": "", "features": ["x", 1]}}, "no list of names"),
        ({"versions": {"tvm": "1"}}, r"versions\['tvm_ffi'\] is not text"),
        ({"model": {"name": 1, "sha256": ""}}, "'model': 1: str"),
        ({"report": None}, "'report': None"),
        ({"format": None}, "'format': None"),
        ({"state": {}}, "'state': {}"),
        ({"state": [["out"]]}, r"'state': \['out'\]"),
        ({"state": [["out", "in"]]}, "'state' pairs 'out' with 'in'"),
        ({"state": [["out", "input ☃"]]}, r"'out' is int64\[\], and 'input ☃' is float32"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, Any], message: str) -> None:
    fields = {**json.loads(EXAMPLE.to_json()), **change}
    with pytest.raises(ArtifactError, match=message):
        Metadata.from_json(json.dumps(fields))


PAIR = metadata(
    [("x", (2,), "float32"), ("h", (3,), "float32")], [("y", (2,), "float32"), ("hn", (3,), "float32")],
    programs=(Program("main", (), ((1, (3,)),), updates=((1, 1),)),), state=(("hn", "h"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("destinations", "updates", "state", "message"),
    [
        ([[1, [3]]], [[1]], [["hn", "h"]], "'programs'"),
        ([[1, [3]]], [["hn", "h"]], [["hn", "h"]], "'programs'"),
        ([[1, [3]]], [[1, 1]], [], "updates"),
        ([[1, [3]]], [[0, 0]], [["hn", "h"]], "updates"),
        ([[1, [3]]], [[1, 1], [1, 1]], [["hn", "h"]], "updates"),
        ([[0, [2]]], [[1, 1]], [["hn", "h"]], "updates"),
        ([[1, [3]]], [[1, 1]], [["hn", "h"], ["hn", "h"]], "a name twice"),
    ],
)
def test_updates_are_of_states_that_a_program_writes(destinations: Any, updates: Any, state: Any, message: str) -> None:
    assert Metadata.from_json(PAIR.to_json()) == PAIR
    fields = json.loads(PAIR.to_json())
    fields["programs"][0][2], fields["programs"][0][6], fields["state"] = destinations, updates, state
    with pytest.raises(ArtifactError, match=message):
        Metadata.from_json(json.dumps(fields))


SIZED = metadata(
    [("x", ("N", 3), "float32")],  # type: ignore[list-item]
    [("y", ("2*N",), "float32")],  # type: ignore[list-item]
    symbols=(Symbol("N", 0, 500, 4, 512),),
    programs=(
        Program("main", (), arena=(View(64, (3, 4), "float32"),), symbols=(Symbol("N", 1, 500, 4, 512),)),
        Program("main0", (), fixed=(("N", 0),)),
    ),
)  # fmt: skip

#: What is fixed, and symbols, of a program of any size.
_ANY = [[], [["N", 1, 500, 4, 512]]]


@pytest.mark.parametrize(
    ("field", "rows"),
    [
        (
            "symbols",
            [
                ["N", 1, 8, 1], ["N.x", 1, 8, 1, 8], ["N", -1, 8, 1, 8], ["N", 0, 0, 1, 0], ["N", 4, 2, 1, 8],
                ["N", 1, 8, 0, 8],
            ],
        ),
        ("symbols", [["N", 1, 8, 1, 4], 5, None, {"name": "N"}]),
        ("offloads", [None, [], [0, "a", "b"], [9, "a", "b", "c"], ["0", "a", "b", "c"], [0, 1, "b", "c"]]),
        (
            "programs",
            [["main", [0], [], 0, 0.0, [], [], *_ANY], ["main", [], [], 0, 0.0, [[-1, [3], "float32"]], [], *_ANY]],
        ),
        (
            "programs",
            [["main", [], [], 0, 0.0, [[0, [3], "object"]], [], *_ANY], ["main", [], [], 0, 10**400, [], [], *_ANY]],
        ),
        ("programs", [["main", [], [], 0, 0.0, [], [], [], []], ["main", [], [], 0, 0.0, [], [], [["M", 2]], []]]),
        (
            "programs",
            [["main", [], [], 0, 0.0, [], [], [["N", 3]], []], ["main", [], [], 0, 0.0, [], [], [["N", -1]], []]],
        ),
        ("programs", [["main", [], [], 0, 0.0, [], [], [], [["N", 0, 8, 1, 8]]], ["main", [], [], 0, 0.0, [], []]]),
        (
            "bodies",
            [["body", [["x", ["N"], "float32"]], [], ["body", [], [], 0, 0.0, [], [], [], []]], ["body", [], []]],
        ),
    ],
)  # fmt: skip
def test_rows_that_say_what_cannot_be_are_refused(field: str, rows: list[Any]) -> None:
    fields = json.loads(SIZED.to_json())
    assert Metadata.from_json(SIZED.to_json()) == SIZED
    assert fields["symbols"] == [["N", 0, 500, 4, 512]]
    assert fields["programs"] == [
        ["main", [], [], 0, 0.0, [[64, [3, 4], "float32"]], [], [], [["N", 1, 500, 4, 512]]],
        ["main0", [], [], 0, 0.0, [], [], [["N", 0]], []],
    ]
    for wrong in rows:
        with pytest.raises(ArtifactError, match=f"'{field}'"):
            Metadata.from_json(json.dumps({**fields, field: [wrong]}))


_BODY: list[Any] = ["body", [], [], ["main_body", [], [], 0, 0.0, [], [], [], []]]


def _changed(path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """The fields of SIZED with a loop's body, of which one is another."""
    fields: dict[str, Any] = {**json.loads(SIZED.to_json()), "bodies": copy.deepcopy([_BODY])}
    at: Any = fields
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return fields


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("programs", 1, 0), "main"),
        (("bodies",), [_BODY, [*_BODY[:3], ["other", *_BODY[3][1:]]]]),
        (("bodies", 0, 3, 7), [["N", 4]]), (("bodies", 0, 3, 8), [["N", 1, 500, 4, 512]]),
        (("programs", 1, 7), [["N", 0], ["N", 0]]), (("programs", 1, 7), [["N", 4], ["N", 0]]),
        (("programs", 1, 7), [["N", 504]]), (("programs", 1, 7), [["N", 6]]), (("programs", 0, 8, 0, 2), 496),
        (("programs", 0, 8, 0), ["N", 1, 512, 4, 512]), (("outputs", 0, 1, 0), "N - 4"),
    ],
)  # fmt: skip
def test_programs_that_contradict_the_model_are_refused(path: Sequence[str | int], value: Any) -> None:
    assert Metadata.from_json(json.dumps(_changed(["format"], SIZED.format))).bodies[0].name == "body"
    with pytest.raises(ArtifactError, match=f"'{path[0]}'"):
        Metadata.from_json(json.dumps(_changed(path, value)))


_LONG = "x" * 100_000
_MANY = list(range(100_000))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("programs", 0), [_LONG, [], [], 0, -1.0, [], [], *_ANY]), (("programs", 0, 1), _MANY),
        (("programs", 0, 2), [[i, []] for i in _MANY]), (("programs", 0, 2), [[0, _MANY]]),
        (("programs", 0, 5), [[-1, [1] * 100_000, "float32"]]), (("programs", 0, 5), [[0, [], _LONG]]),
        (("programs", 0, 5), [[9 * 10**4299, [1], "int8"]]), (("programs", 0, 6), [[i, i] for i in _MANY]),
        (("programs", 0, 7), [[_LONG, 1]]), (("programs", 0, 8, 0, 0), _LONG), (("programs", 1, 7), [["N", 4]] * 9999),
        (("symbols", 0, 0), _LONG), (("inputs", 0, 1), [_LONG]), (("inputs", 0, 1), _MANY), (("outputs", 0, 2), _LONG),
        (("state",), [[_LONG, _LONG]]), (("threads",), 10**4000), (("bodies",), [[_LONG, *_BODY[1:]]] * 2),
        (("weights",), [[_LONG, [-1], "float32"]]), (("offloads",), [[i, "a", "b", "c"] for i in _MANY]),
    ],
)  # fmt: skip
def test_messages_are_short_whatever_the_values_are(path: Sequence[str | int], value: Any) -> None:
    with pytest.raises(ArtifactError) as caught:
        Metadata.from_json(json.dumps(_changed(path, value)))
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("field", ["report", "machine"])
def test_plain_values_may_be_nested_deep(field: str) -> None:
    text = EXAMPLE.to_json().replace(f'"{field}":{{', f'"{field}":{{"deep":{"[" * 600 + "]" * 600},')
    assert Metadata.from_json(text).to_json() == text


@pytest.mark.parametrize("text", ["", "[]", "{", "null", b"\xff\xfe", "[" * 100000])
def test_not_json(text: str | bytes) -> None:
    with pytest.raises(ArtifactError, match="metadata is no"):
        Metadata.from_json(text)


def test_fields_of_later_versions_are_ignored() -> None:
    fields = {**json.loads(EXAMPLE.to_json()), "later": 1}
    assert Metadata.from_json(json.dumps(fields)) == EXAMPLE


def test_installed_versions() -> None:
    import tvm
    import tvm_ffi

    versions = installed_versions()
    assert versions["tvm"] == tvm.__version__ and versions["tvm_ffi"] == tvm_ffi.__version__
    assert versions["tvm_ext"]


@pytest.mark.parametrize(
    ("past", "present", "wrong"),
    [
        ((2, "P"), (2, "(P + S)"), ""), (("S", "P"), ("S", "(P + S)"), "state"),
        ((2, "P"), (3, "(P + S)"), "state"), ((2, 5), (2, "(P + S)"), "state"), ((2, "P"), (2, "P"), "state"),
        *(((2, size), (2, "(P + 2)"), "symbols") for size in ("(P + 1)", "2*P", "Q")),
    ],
)  # fmt: skip
def test_a_state_grows_along_one_axis_whose_size_is_a_symbol_by_itself(past: Any, present: Any, wrong: str) -> None:
    symbols = (Symbol("P", 1, 8, 1, 8), Symbol("S", 1, 4, 1, 4))
    described = metadata(
        [("x", ("S", "P"), "float32"), ("past", past, "float32")], [("present", present, "float32")],
        programs=(Program("main", (), symbols=symbols),), state=(("present", "past"),), symbols=symbols,
    )  # fmt: skip
    if not wrong:
        assert Metadata.from_json(described.to_json()) == described
        return
    with pytest.raises(ArtifactError, match=f"'{wrong}'"):
        Metadata.from_json(described.to_json())
