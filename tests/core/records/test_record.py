"""Rows of logs: there and back, those of AutoTVM, and everything that is none."""

import json
import math
import random
from typing import Any

import pytest

from tests.core.log_rows import AUTOTVM, CONV, MACHINE, PICKLED, record
from tvm_ext.core.records.record import ERRORS, Record, RecordError
from tvm_ext.core.records.task_key import TaskKey

KINDS = [
    record(),
    record(costs=(), error="wrong", detail="output 0: 0.5 of its range", check=0.5),
    record(costs=(), error="crash", detail='signal 11 \n "quoted" ümläut \ud800'),
    record(costs=(3.0,), discarded=True, check=None, kinds={}, index=10**30),
    record(TaskKey.of("template:tiled", [512, 0.5, None, True, {"a": [1]}]), "tiled", 0, machine={}, session=""),
]


@pytest.mark.parametrize("record", KINDS, ids=lambda r: r.error or r.task.op)
def test_a_row_is_one_line_and_reads_back(record: Record) -> None:
    row = record.to_row("llvm -mcpu=znver4", "0.27.0")
    assert "\n" not in row and row.isascii()
    assert Record.from_row(row) == record == Record.from_row(f"  {row}\r")


def test_the_row_is_autotvms() -> None:
    """Every field that AutoTVM's `decode` reads is there, under its name and in its place."""
    row = json.loads(record().to_row("llvm", "0.27.0"))
    target, template, args, keywords = row["input"]
    assert (target, template, keywords) == ("llvm", "conv2d_nchwc", {}) and args == CONV.args
    assert row["config"]["index"] == 7 and row["config"]["code_hash"] is None
    assert row["config"]["entity"] == [["tile_o", "ot", 2], ["tile_p", "ot", 7], ["order", "re", ["a", "b"]]]
    assert row["result"] == [[1.5e-4, 1.25e-4, 2e-4], 0, 0.5, 1764300000.25]
    assert (row["version"], row["tvm_version"]) == (0.2, "0.27.0")
    failed = json.loads(record(costs=(), error="run-timeout").to_row())
    assert failed["result"][:2] == [[1e9], 7]


def test_rows_of_autotvm_are_records() -> None:
    conv, matmul, failed = map(Record.from_row, AUTOTVM)
    assert conv.recipe == "conv2d_NCHWc.x86" and conv.cost == 0.00072 and conv.usable and conv.index == 163
    assert conv.config == {"tile_ic": [-1, 3], "tile_oc": [-1, 32], "tile_ow": [-1, 14], "unroll_kw": False}
    assert conv.kinds == {"tile_ic": "sp", "tile_oc": "sp", "tile_ow": "sp"} and conv.machine == {}
    assert conv.task.args[0] == ["TENSOR", [1, 3, 224, 224], "float32"]
    assert matmul.task == TaskKey.of("template:tutorial/matmul", [512, 512, 512, "float32"])
    assert failed.error == "build-timeout" and failed.costs == () and math.isinf(failed.cost) and not failed.usable
    assert failed.config["reorder_0"] == [0, 2, 1] and failed.kinds == {"reorder_0": "re", "ann": "an"}
    assert all(Record.from_row(r.to_row()) == r for r in (conv, matmul, failed))


def test_keyword_arguments_of_autotvm_belong_to_the_task() -> None:
    plain = Record.from_row(AUTOTVM[1])
    other = Record.from_row(AUTOTVM[1].replace('"float32"], {}]', '"float32"], {"layout": "NT"}]'))
    assert other.task != plain.task and Record.from_row(other.to_row()) == other


@pytest.mark.parametrize("name", [e for e in ERRORS if e])
def test_every_error_has_autotvms_number(name: str) -> None:
    row = json.loads(record(costs=(), error=name).to_row())
    assert row["result"][1] == ERRORS[name]
    del row["tvm_ext"]["error"]  # a reader of AutoTVM sees the number only
    assert ERRORS[Record.from_row(json.dumps(row)).error] == ERRORS[name]


def test_the_time_is_the_median_repeat() -> None:
    assert record().cost == 1.5e-4 and record(costs=(1.0, 3.0)).cost == 2.0
    assert math.isinf(record(costs=()).cost) and not record(costs=()).usable
    assert record().usable and not record(discarded=True).usable


@pytest.mark.parametrize(
    "fields", [{"error": "odd"}, {"error": "wrong"}, {"costs": (0.0,)}, {"costs": (-1.0,)}, {"costs": (math.nan,)}]
)
def test_what_contradicts_itself_is_no_record(fields: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        record(**fields)


def row(**changes: Any) -> str:
    """A good row with other fields; "tvm_ext.NAME" is one of ours."""
    plain = json.loads(record().to_row("llvm", "0.27.0"))
    for name, value in changes.items():
        if name.startswith("ours_"):
            plain["tvm_ext"][name[5:]] = value
        else:
            plain[name] = value
    return json.dumps(plain)


def config(entity: Any) -> dict[str, Any]:
    return {"index": 0, "code_hash": None, "entity": entity}


GOOD = record().to_row("llvm", "0.27.0")
BAD = {
    "empty": ("", "not JSON"), "words": ("hello", "not JSON"), "cut": (GOOD[:200], "cut off"),
    "cut at 1": ("{", "cut off"),
    "two rows in one line": (GOOD + GOOD, "not JSON"), "glued": (GOOD[:100] + GOOD, "not JSON"),
    "nul": ("\0" * 100, "not JSON"), "BOM": ("\ufeff" + GOOD, "not JSON"),
    "pickled": (PICKLED, "pickled protocol"),
    "foreign": ('{"workload": [1], "trace": [[], []]}', "version None"), "list": ("[1, 2]", "line=.*an object"),
    "number": ("7", "an object"), "null": ("null", "an object"), "nothing": ("{}", "version None"),
    "version 0.1": ('{"i": ["llvm", "conv2d", [], {}], "r": [[0.1], 0, 0, 0], "v": 0.1}', "version 0.1"),
    "version text": (row(version="0.2"), "version '0.2'"), "version list": (row(version=[0.2]), "version"),
    "NaN": (GOOD.replace("0.00015", "NaN"), "NaN is no number"), "minus": (row(result=[[-1.0], 0, 1, 1]), "positive"),
    "Infinity": (GOOD.replace("0.00015", "-Infinity"), "no number"),
    "1e999": (GOOD.replace("0.00015", "1e999"), "float64"),
    "large time": (row(result=[[1.0], 0, 1, 10**400]), "float64"),
    "9^5000": (GOOD.replace("0.00015", "9" * 5000), "."),
    "brackets": ("[" * 100_000, "nested"), "closed": ("[" * 100_000 + "]" * 100_000, "nested"),
    "deep args": (row(input=["llvm", "x", json.loads("[" * 200 + "]" * 200), {}]), "nested"),
    "no input": (row(input=None), "."), "short input": (row(input=["llvm"]), "format 0.2"),
    "args": (row(input=["llvm", "x", "args", {}]), "args='args': a list"),
    "recipe": (row(input=["llvm", 5, [], {}]), "recipe=5"),
    "keywords": (row(input=["llvm", "x", [], 5]), "keywords=5"), "op": (row(ours_op=[1]), "op="),
    "config": (row(config=None), "."), "entity": (row(config=config("abc")), "entity"),
    "knob": (row(config=config(["abc"])), "knob"), "knob name": (row(config=config([[1, "ot", 2]])), "knob=1"),
    "short knob": (row(config=config([["a", "ot"]])), "format 0.2"),
    "twice": (row(config=config([["a", "ot", 1], ["a", "ot", 2]])), "twice"),
    "index": (row(config={"index": "7", "entity": []}), "index"),
    "result": (row(result={}), "format 0.2"), "costs text": (row(result=["123", 0, 1, 1]), "costs='123'"),
    "cost text": (row(result=[["0.1"], 0, 1, 1]), "cost="), "cost true": (row(result=[[True], 0, 1, 1]), "cost=True"),
    "number text": (row(result=[[1.0], "0", 1, 1]), "error number"),
    "number 0.5": (row(result=[[1.0], 0.5, 1, 1]), "0.5"),
    "time": (row(result=[[1.0], 0, 1, None]), "time=None"), "zero": (row(result=[[0], 0, 1, 1]), "positive"),
    "ours": (row(tvm_ext=[1]), "tvm_ext"), "ours null": (row(tvm_ext=None), "tvm_ext"),
    "check": (row(ours_check="good"), "check"), "discarded": (row(ours_discarded="no"), "discarded"),
    "machine": (row(ours_machine=[["isa", "avx512"]]), "machine"), "session": (row(ours_session=3), "session"),
    "recipe_version": (row(ours_recipe_version=True), "recipe_version"), "error": (row(ours_error=["x"]), "error"),
    "good with a bad number": (row(ours_error="", result=[[1e9], 4, 1, 1]), "is not number 4"),
    "bad with a good number": (row(ours_error="wrong"), "is not number 0"), "detail": (row(ours_detail={}), "detail"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "why"), BAD.values(), ids=BAD)
def test_what_is_no_record_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(RecordError, match=why) as caught:
        Record.from_row(line)
    assert len(str(caught.value)) < 400  # whatever the line holds


def test_what_is_not_known_does_no_harm() -> None:
    assert Record.from_row(row(comment="later versions may say more", ours_more=[1])) == record()
    assert Record.from_row(row(result=[[1e9], 99, 1, 1])).error == "unknown"


# ------------------------------------------------------------------------------------------------ mutations
ATOMS = [
    None, True, False, 0, 1, -1, 7, 0.5, 1e308, 10**25, "", "a", "wrong", "0.2", [], {}, [[]], [1, "a"], {"a": 1},
    "\ud800", "\n", [["a", "ot", 1]], 0.2, 1e-9,
]  # fmt: skip
PIECES = [*'{}[]",:-\\\té', "NaN", "1e999", "null", "\\u0000", "9" * 400, "[" * 2000]


def mutated(rng: random.Random, line: str) -> str:
    """A row with one to three changes, of its values or of its text."""
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.6:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            line = json.dumps(_other(rng, value))
        else:
            start = rng.randrange(len(line) + 1)
            end = min(len(line), start + rng.choice([0, 0, 1, 2, 30]))
            line = line[:start] + rng.choice([*PIECES, ""]) + line[end:]
    return line


def _other(rng: random.Random, value: Any) -> Any:
    """The value with some part replaced, left out or doubled."""
    if not isinstance(value, list | dict) or not value or rng.random() < 0.12:
        return rng.choice(ATOMS)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    copy = value.copy()
    kind = rng.random()
    if kind < 0.1:
        del copy[key]
    elif kind < 0.15 and isinstance(copy, list):
        copy.insert(key, copy[key])
    elif kind < 0.15:
        copy[rng.choice(["a", "error", "check", "version"])] = copy.pop(key)
    else:
        copy[key] = _other(rng, copy[key])
    return copy


def test_a_mutated_row_is_refused_or_a_record_that_holds() -> None:
    rng = random.Random(0)
    rows = [*(record.to_row("llvm", "0.27.0") for record in KINDS), *AUTOTVM]
    refused = 0
    for _ in range(2000):
        line = mutated(rng, rng.choice(rows))
        try:
            parsed = Record.from_row(line)
        except RecordError as error:
            refused += 1
            assert str(error)
            continue
        assert Record.from_row(parsed.to_row()).to_row() == parsed.to_row()  # which rounds times
        assert isinstance(parsed.task.short, str) and parsed.task == TaskKey.of(parsed.task.op, parsed.task.args)
        assert parsed.usable <= math.isfinite(parsed.cost) and parsed.error in ERRORS
        assert all(isinstance(knob, str) for knob in parsed.config) and isinstance(parsed.machine, dict)
    assert 800 < refused < 1900  # both happen


def test_machine_fields_are_kept() -> None:
    assert Record.from_row(GOOD).machine == MACHINE
