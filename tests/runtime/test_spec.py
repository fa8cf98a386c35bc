"""Tensor specs and metadata: JSON both ways, every wrong field named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tvm_ext.core.errors import ArtifactError
from tvm_ext.core.machine import Machine
from tvm_ext.runtime.spec import Metadata, Program, TensorSpec, installed_versions

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
        ({"threads": "2"}, "'threads' is '2'; int is needed"),
        ({"threads": True}, "'threads' is True"),
        ({"parallel": 1}, "'parallel' is 1; bool"),
        ({"inputs": {}}, "'inputs'"),
        ({"weights": [["w", [1], "float31"]]}, "'weights' has the tensor"),
        ({"weights": [["w", [-1], "float32"]]}, "0 or more"),
        ({"weights": [["w", [True], "float32"]]}, "whole numbers"),
        ({"weights": [["w", 3, "float32"]]}, "a row is"),
        ({"outputs": [["w", [1]]]}, "'outputs' has the tensor"),
        ({"outputs": [["w", [1], "object"]]}, "no dtype of numbers"),
        ({"outputs": ["abc"]}, "a row is"),
        ({"outputs": [None]}, "'outputs' has the tensor None"),
        ({"machine": {}}, r"machine\['isa'\] is not text"),
        ({"machine": {"isa": "a", "mcpu": "b", "triple": "", "features": ["x", 1]}}, "no list of names"),
        ({"versions": {"tvm": "1"}}, r"versions\['tvm_ffi'\] is not text"),
        ({"model": {"name": 1, "sha256": ""}}, r"model\['name'\] is not text"),
        ({"report": None}, "'report' is None"),
        ({"format": None}, "'format' is None"),
        ({"state": {}}, "'state' is {}"),
        ({"state": [["out"]]}, r"'state' has \['out'\]: \[output, input\]"),
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
        ([[1, [3]]], [[1]], [["hn", "h"]], "'programs' has"),
        ([[1, [3]]], [["hn", "h"]], [["hn", "h"]], "an update is"),
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
