"""The kit: a good back end passes all of it, and what is wrong with a bad one is said by the check that is about it."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tvm_ext.byoc import Backend, Lowered, Pattern
from tvm_ext.byoc.testing import Case, KitModel, KitReport, KitRow, Tensor, cases, check_backend, deploying, graph, kit
from tvm_ext.byoc.testing.models import float_models

QUICK = {
    "pattern-dense", "numbers-dense-bias-relu", "numbers-twins", "numbers-two-adds", "report-island", "runner-split",
    "disassembly-perceptron", "refusal-operator", "refusal-dtype", "refusal-skip-node", "refusal-skip-onnx",
    "refusal-skip-tvm", "refusal-minimum-work", "refusal-option", "programs-twice", "deploy-fresh-process",
    "deploy-no-driver", "deploy-changed", "driver-damaged", "driver-fails",
}  # fmt: skip
KEEP = {"dense", "dense-bias-relu", "twins", "two-adds", "perceptron", "island", "split", "conv"}


def few(backend: Backend, options: dict[str, Any] | None = None) -> dict[str, Case]:
    """The cases of a back end by name, on a few models."""
    models = [model for model in float_models() if model.name in KEEP]
    with mock.patch.object(kit, "float_models", lambda: models), mock.patch.object(kit, "quantized_models", tuple):
        return {str(case): case for case in cases(backend, options)}


def failure(backend: Backend, name: str) -> str:
    """What a case says of a back end that is wrong."""
    with pytest.raises(AssertionError) as caught:
        few(backend)[name].run()
    text = str(caught.value)
    assert text.startswith(f"{name}: expected: ") and "; came: " in text
    return text.partition("; came: ")[2]


def running(chip: Backend, wrap: Callable[..., None]) -> Backend:
    """The back end, its runners called by `wrap(run, inputs, outputs)`."""

    def driver(program: bytes) -> Any:
        run = chip.driver(program)
        return lambda inputs, outputs: wrap(run, inputs, outputs)

    return replace(chip, driver=driver)


def lowering(chip: Backend, change: Callable[[Lowered], Lowered]) -> Backend:
    return replace(chip, lower=lambda region, options: change(chip.lower(region, options)))


# ------------------------------------------------------------------------------------------------ good ones
def test_the_template_passes_what_is_quick(chip: Backend) -> None:
    cases_of_chip = few(chip)
    assert cases_of_chip.keys() >= QUICK
    for name in QUICK:
        cases_of_chip[name].run()


def test_a_report_of_what_passes(chip: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the template passes all is what its own test says, which `tests/test_documents.py` runs."""
    monkeypatch.setattr(kit, "float_models", lambda: [m for m in float_models() if m.name == "dense"])
    monkeypatch.setattr(kit, "quantized_models", tuple)
    monkeypatch.setattr(kit, "_OF_A_BACK_END", ())
    report = check_backend(chip, {"launch": 1e-9})
    assert report.ok and {row.check for row in report.rows} >= {"pattern", "numbers", "report", "runner", "disassembly"}
    assert "ok    pattern-dense" in str(report)
    assert str(report).endswith(f"back end 'kit_chip': {len(report.rows)} checks, 0 failed")


def test_models_of_ones_own_are_checked_too(chip: Backend) -> None:
    proto = graph(["y = MatMul(x, w)"], {"x": Tensor((2, 3))}, {"w": np.ones((3, 5), np.float32)})
    by_name = {str(case): case for case in cases(chip, models=[KitModel("mine", "my own", proto)])}
    assert by_name["numbers-mine"].run().startswith("1 of 1 nodes there")


def test_models_are_those_that_a_back_end_has_anchors_and_dtypes_for(chip: Backend) -> None:
    names = {case.about for case in cases(chip) if case.check == "numbers"}
    assert "dense" in names and not {"conv", "softmax", "int8-dense"} & names
    wide = replace(chip, limits=replace(chip.limits, dtypes=("float32", "int8", "float64", "int32", "float16")))
    all_cases = [*cases(wide)]
    assert "int8-dense" in {case.about for case in all_cases} and "refusal-dtype" not in map(str, all_cases)


# ------------------------------------------------------------------------------------------------ bad ones
def test_a_pattern_that_matches_nothing(chip: Backend) -> None:
    never = Pattern("never", ("relax.matmul",), check=lambda composite, options: "no")
    came = failure(replace(chip, patterns=(*chip.patterns, never)), "pattern-never")
    assert "in none of" in came and "relax.matmul" in came


def test_wrong_numbers(chip: Backend) -> None:
    def wrong(run: Any, inputs: Any, outputs: Any) -> None:
        run(inputs, outputs)
        outputs[0][-1] += 1

    came = failure(running(chip, wrong), "numbers-dense")
    assert "output 'y': error" in came and "a constant weight" in came


def test_constants_that_are_shared_by_their_shape(chip: Backend) -> None:
    """Equal layers with other weights: a lowering that keeps weights by their shapes."""
    known: dict[Any, Any] = {}

    def lower(region: Any, options: Any) -> Lowered:
        def first(operand: Any) -> Any:
            return known.setdefault(operand.shape, operand) if isinstance(operand, np.ndarray) else operand

        changed = [
            replace(c, anchor=replace(c.anchor, operands=tuple(map(first, c.anchor.operands))))
            for c in region.composites
        ]
        return chip.lower(replace(region, composites=tuple(changed)), options)

    assert "output 'y2'" in failure(replace(chip, lower=lower), "numbers-twins")


def test_a_runner_that_leaves_part_of_an_output(chip: Backend) -> None:
    def part(run: Any, inputs: Any, outputs: Any) -> None:
        results = [np.empty_like(output) for output in outputs]
        run(inputs, results)
        for output, full in zip(outputs, results, strict=True):
            output[..., 1:] = full[..., 1:]

    assert "what was in their memory before" in failure(running(chip, part), "runner-dense")


def test_a_runner_that_writes_to_its_inputs(chip: Backend) -> None:
    def write(run: Any, inputs: Any, outputs: Any) -> None:
        run(inputs, outputs)
        inputs[0][...] = 0

    assert "an input was written to" in failure(running(chip, write), "runner-dense")


def test_a_runner_for_one_thread(chip: Backend) -> None:
    shared: dict[str, Any] = {}

    def slow(run: Any, inputs: Any, outputs: Any) -> None:
        shared["inputs"] = inputs
        time.sleep(0.001)
        run(shared["inputs"], outputs)

    assert "of 160 calls" in failure(running(chip, slow), "deploy-threads")


def test_programs_that_are_never_the_same(chip: Backend) -> None:
    count = itertools.count()
    salted = lowering(chip, lambda lowered: replace(lowered, program=lowered.program + bytes([next(count)])))
    salted = replace(salted, driver=lambda program: chip.driver(program[:-1]))
    assert "other bytes in kit_chip_region_0" in failure(salted, "programs-twice")


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0])
def test_a_cost_that_is_no_time(chip: Backend, cost: float) -> None:
    assert f"is {cost}" in failure(replace(chip, cost=lambda region, options: cost), "report-dense")


def test_facts_that_are_no_plain_values(chip: Backend) -> None:
    odd = lowering(chip, lambda lowered: replace(lowered, facts={"rate": float("nan")}))
    assert "not finite: nan" in failure(odd, "report-dense")


def test_a_disassembler_that_says_nothing(chip: Backend) -> None:
    assert "a program without text" in failure(replace(chip, disassemble=lambda program: ""), "disassembly-dense")
    assert not any(case.check == "disassembly" for case in cases(replace(chip, disassemble=None)))


def test_a_driver_that_no_other_process_can_import(chip: Backend) -> None:
    def driver(program: bytes) -> Any:
        return chip.driver(program)

    driver.__module__ = "no_such_module"
    assert "No module named 'no_such_module'" in failure(replace(chip, driver=driver), "deploy-fresh-process")


def test_programs_without_a_checksum(chip: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process imports the careless driver of this folder."""
    from . import careless

    monkeypatch.setattr(deploying, "_MUTATIONS", 40)
    assert "it ran, and gave other values" in failure(careless.make(chip), "driver-damaged")


def test_a_driver_that_imports_the_compiler(chip: Backend) -> None:
    from . import careless

    assert "tvm imported there" in failure(careless.make(chip), "deploy-fresh-process")


def test_a_back_end_that_takes_nothing(chip: Backend) -> None:
    (pattern,) = chip.patterns
    nothing = replace(chip, patterns=(replace(pattern, check=lambda composite, options: "no"),))
    for name in ("pays-default", "refusal-skip-node", "deploy-threads"):
        assert "no model of the kit is offloaded" in failure(nothing, name)


def test_a_lowering_that_raises(chip: Backend) -> None:
    def lower(region: Any, options: Any) -> Lowered:
        raise KeyError("relax.matmul")

    came = failure(replace(chip, lower=lower), "numbers-dense")
    assert "KeyError" in came


def test_the_back_end_is_registered_as_it_is_afterwards(chip: Backend) -> None:
    from tvm_ext.byoc import backend_named
    from tvm_ext.runtime.drivers import driver_named

    few(chip)["driver-fails"].run()
    assert backend_named("kit_chip") is chip and driver_named("kit_chip") is chip.driver


# ------------------------------------------------------------------------------------------------ the report
def test_a_report_shows_what_failed() -> None:
    rows = (KitRow("numbers", "dense", True, "1 of 1"), KitRow("runner", "self", False, "expected: a; came: b"))
    report = KitReport("odd", rows)
    assert not report.ok and report.failed == rows[1:] and not KitReport("odd", ()).ok
    assert str(report).splitlines() == [
        "ok    numbers-dense  1 of 1", "FAIL  runner-self    expected: a; came: b",
        "back end 'odd': 2 checks, 1 failed",
    ]  # fmt: skip


def test_the_kit_raises_nothing(chip: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise ZeroDivisionError("oops")

    two_cases = (Case("numbers", "dense", "numbers", fails), Case("numbers", "twins", "numbers", lambda: "fine"))
    monkeypatch.setattr("tvm_ext.byoc.testing.kit.cases", lambda *_: two_cases)
    report = check_backend(chip)
    assert [row.ok for row in report.rows] == [False, True]
    assert report.rows[0].detail == "expected: numbers; came: ZeroDivisionError: oops"
