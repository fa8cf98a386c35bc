"""Records in a compile: one that fits is followed, any other is refused with its reason and the default is used."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import tvm_ext
from tests.core.log_rows import AUTOTVM, written
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tvm_ext.core.errors import OptionError
from tvm_ext.core.graph.relax_graph import iter_groups
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import Verdict, machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.driver import records as driver
from tvm_ext.driver.cache import Cache
from tvm_ext.driver.records import book_of, fingerprint_of
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.passes.lowering.group_operations import GroupOperations

MACHINE = Machine.detect(threads=2)
MODEL = model(
    [node("Conv", "x w b", "c"), node("Relu", "c", "y")],
    [value("x", (1, 5, 13, 11))], [value("y", (1, 12, 11, 9))],
    {"w": random(12, 5, 3, 3, scale=0.2), "b": random(12)},
)  # fmt: skip
RECIPE = "conv2d_nchwc"


def group() -> Group:
    ((gvar, function),) = iter_groups(stage(MODEL, GroupOperations).mod)
    return Group(gvar.name_hint, function)


KEY = TaskKey.of_group(group())


def points() -> tuple[Config, list[Config], list[Config]]:
    """The default of the recipe, other legal points, and illegal ones."""
    recipe, match = next((r, m) for r, m in matches(group(), MACHINE) if r.name == RECIPE)
    legal, illegal = [], []
    for config in recipe.points(match, MACHINE):
        (illegal if math.isinf(recipe.cost(match, config, MACHINE)) else legal).append(config)
    default = recipe.default(match, MACHINE)
    return default, [c for c in legal if c["tile_p"] != default["tile_p"]], illegal


DEFAULT, OTHERS, ILLEGAL = points()


def row(config: Config | None = None, **changes: Any) -> Record:
    fields = {"costs": (1e-5,), "machine": machine_fields(MACHINE), "session": "s1", "timestamp": 5.0}
    return Record(**{"task": KEY, "recipe": RECIPE, "version": 1, "config": config or OTHERS[0], **fields, **changes})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.json"


def compiled(log: Any, proto: onnx.ModelProto = MODEL, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The kernel of the convolution, and what choose-recipes skipped; the output is onnxruntime's."""
    report = agrees(proto, records=log, **options).report
    (chosen,) = [p for p in report["passes"] if p["name"] == "choose-recipes"]
    (kernel,) = [k for k in report["kernels"] if k["recipe"] == RECIPE]
    return kernel, [why for _, why in chosen["skipped"]]


# ------------------------------------------------------------------------------------------------ followed or refused
def test_a_record_that_fits_is_followed(log: Path) -> None:
    kernel, skipped = compiled(written(log, row()))
    assert kernel["config"] == OTHERS[0] != DEFAULT and kernel["record"] == "s1" and not skipped


@pytest.mark.parametrize("config", OTHERS[1 :: len(OTHERS) // 4])
def test_whatever_legal_point_it_names_the_output_is_right(log: Path, config: Config) -> None:
    assert compiled(written(log, row(config)))[0]["config"] == config


def test_the_fastest_is_followed(log: Path) -> None:
    kernel, _ = compiled(written(log, row(OTHERS[1], costs=(2e-5,)), row(OTHERS[2]), row(OTHERS[3], costs=(3e-5,))))
    assert kernel["config"] == OTHERS[2]


REFUSED = {
    "isa": (row(machine={**machine_fields(MACHINE), "isa": "neon"}), "made for instruction set neon, this is"),
    "threads": (row(machine={**machine_fields(MACHINE), "threads": 64}), "made for number of threads 64, this is 2"),
    "version": (row(version=99), "made for version 99 of the recipe, this is version"),
    "recipe": (row(recipe="conv2d_magic"), "no recipe 'conv2d_magic' may be used here"),
    "recipe of another operation": (row(recipe="softmax"), "no recipe 'softmax' may be used here"),
    "illegal": (row(ILLEGAL[0] if ILLEGAL else {**DEFAULT, "tile_p": 10**6}), "is not "),
    "outside": (row({**DEFAULT, "tile_p": 1000}), "is not in its space"),
    **{
        type(value).__name__: (row({**DEFAULT, "tile_p": value}), "is not in its space")
        for value in (float(DEFAULT["tile_p"]), True, "7", [7])
    },
    "knob missing": (row({k: v for k, v in DEFAULT.items() if k != "tile_p"}), "its knobs"),
    "another knob": (row({**DEFAULT, "magic": 1}), "its knobs"),
}


@pytest.mark.parametrize(("record", "why"), REFUSED.values(), ids=REFUSED)
def test_one_that_does_not_fit_is_refused_by_name(log: Path, record: Record, why: str) -> None:
    kernel, (skipped,) = compiled(written(log, record))
    assert kernel["config"] == DEFAULT and kernel["record"] == ""
    assert why in skipped and f"record of {record.recipe}" in skipped


def test_an_illegal_point_is_refused_as_illegal(log: Path) -> None:
    if not ILLEGAL:
        pytest.skip("every point of this space is legal on this machine")
    assert "is not legal here" in compiled(written(log, row(ILLEGAL[0])))[1][0]


def test_a_transform_is_not_used_where_the_sums_must_be_exact(log: Path) -> None:
    """accuracy="exact" holds against a record too."""
    _, skipped = compiled(written(log, row(recipe="conv2d_winograd")), accuracy="exact")
    assert "no recipe 'conv2d_winograd' may be used here" in skipped[0]


def test_records_of_other_work_say_nothing(log: Path) -> None:
    wide = TaskKey(KEY.op, KEY.text.replace("float32", "float64"))
    other = TaskKey(KEY.op, KEY.text.replace('"strides":[1,1]', '"strides":[2,2]'))
    assert len({KEY, wide, other}) == 3
    kernel, skipped = compiled(written(log, row(task=wide), row(task=other), *AUTOTVM))
    assert kernel["config"] == DEFAULT and not skipped


@pytest.mark.parametrize(
    "changes", [{"costs": (), "error": "wrong"}, {"costs": (), "error": "crash"}, {"discarded": True}, {"costs": ()}]
)
def test_a_candidate_that_failed_is_never_used(log: Path, changes: dict[str, Any]) -> None:
    kernel, _ = compiled(written(log, row(OTHERS[0], **changes), row(OTHERS[1], costs=(9.0,))))
    assert kernel["config"] == OTHERS[1]


# ------------------------------------------------------------------------------------------------ verdicts
def verdict(config: Config | None, **changes: Any) -> Verdict:
    fields = {"machine": machine_fields(MACHINE), "timestamp": 6.0, "reason": "no faster inside the model"}
    return Verdict(KEY, RECIPE if config else None, config, **{**fields, **changes})


def test_the_verdict_to_use_none_is_followed(log: Path) -> None:
    kernel, skipped = compiled(written(log, row(), verdict(None)))
    assert kernel["config"] == DEFAULT and kernel["record"] == ""
    assert skipped == ["tuned, and left at the default: no faster inside the model"]
    assert compiled(written(log, verdict(None)))[1] == skipped  # a log of verdicts only


def test_the_newest_verdict_names_the_record(log: Path) -> None:
    rows = [row(OTHERS[0]), row(OTHERS[1], costs=(9.0,)), verdict(OTHERS[1], timestamp=7.0), verdict(None)]
    assert compiled(written(log, *rows))[0]["config"] == OTHERS[1]
    foreign = verdict(None, machine={**machine_fields(MACHINE), "threads": 64})
    assert compiled(written(log, row(OTHERS[0]), foreign))[0]["config"] == OTHERS[0]


# ------------------------------------------------------------------------------------------------ which logs
def test_none_uses_none_and_several_logs_are_one(log: Path, tmp_path: Path) -> None:
    assert compiled(None)[0]["config"] == DEFAULT
    slow, fast = written(tmp_path / "a", row(OTHERS[0], costs=(1.0,))), written(log, row(OTHERS[1]))
    assert compiled([slow, str(fast)])[0]["config"] == OTHERS[1]
    assert compiled(slow)[0]["config"] == OTHERS[0] == compiled(str(slow))[0]["config"]


def test_auto_is_what_the_library_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver.SHIPPED.is_dir() and not book_of(CompileOptions()).problems
    monkeypatch.setattr(driver, "SHIPPED", tmp_path)
    assert compiled("auto")[0]["config"] == DEFAULT
    written(tmp_path / "m.znver4-t2.json", row())
    written(tmp_path / "_tune.py", "no log")
    assert compiled("auto")[0]["config"] == OTHERS[0]


def test_a_log_that_is_missing_or_holds_no_record_is_an_error(log: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        tvm_ext.compile(MODEL, records=log)
    wrong = {"no line is a record": (), r"log.json:2: cut off": ("# words", '{"cut'), "not JSON": ("x",)}
    for why, lines in wrong.items():
        with pytest.raises(OptionError, match=why):
            tvm_ext.compile(MODEL, records=written(log, *lines), cache=False)
    for records in (7, [None], [1.5]):
        with pytest.raises(OptionError, match="records="):
            tvm_ext.compile(MODEL, records=records)


def test_bad_lines_among_good_ones_are_warned_of(log: Path) -> None:
    written(log, row(), row().to_row()[:90], *["x"] * 10)
    assert compiled(log)[0]["config"] == OTHERS[0]
    warnings = tvm_ext.compile(MODEL, records=log, cache=False, threads=2).report["warnings"]
    assert len(warnings) == 5 and f"{log}:2: cut off" in warnings[0]


def test_a_record_of_no_session_is_no_default_in_the_report(log: Path) -> None:
    assert compiled(written(log, row(session="")))[0]["record"] == "of no session"


# ------------------------------------------------------------------------------------------------ cache
def test_the_cache_follows_the_content_of_a_log(log: Path, cache_folder: Path) -> None:
    def config() -> Config:
        report = tvm_ext.compile(MODEL, records=log, threads=2).report
        return next(k["config"] for k in report["kernels"] if k["recipe"] == RECIPE)

    written(log, row())
    assert config() == OTHERS[0] == config() and len(Cache().ls()) == 1
    first = log.stat()
    written(log, row(OTHERS[1]))
    assert config() == OTHERS[1] and len(Cache().ls()) == 2
    written(log, row())
    os.utime(log, ns=(first.st_atime_ns, first.st_mtime_ns))
    assert config() == OTHERS[0] and len(Cache().ls()) == 2  # by content, not by name or time
    tvm_ext.compile(MODEL, records=None, threads=2)
    assert len(Cache().ls()) == 3


def test_the_fingerprint_is_that_of_the_records(log: Path) -> None:
    options = CompileOptions(records=str(written(log, row())))
    one = fingerprint_of(options, MACHINE)
    written(log, row(), row(OTHERS[1]))
    assert len({one, fingerprint_of(options, MACHINE), fingerprint_of(replace(options, records=None), MACHINE)}) == 3
