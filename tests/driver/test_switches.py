"""Switches of a compile: each leaves one thing out, says so in the report, and leaves the rest as it is."""

from pathlib import Path
from typing import Any

import pytest

from tests.verification.bisect import models
from tests.verification.bisect.planted import BUGS
from tvm_ext.core.errors import OptionError
from tvm_ext.core.instruments import Instruments, Switches
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.lower import Lowered, lower
from tvm_ext.driver.records import place_of, record_at


def lowered(proto: Any, off: Switches, **options: Any) -> Lowered:
    chosen = CompileOptions.of(**{"threads": 1, "records": None, **options})
    return lower(proto, chosen, Machine.detect(None, 1), instruments=Instruments(switches=off))


def skipped(found: Lowered) -> list[str]:
    return [event.detail for report in found.ctx.reports if report.name == "choose-recipes" for event in report.skipped]


def test_a_recipe_that_is_off_takes_nothing() -> None:
    proto = models.softmax()
    assert {p.recipe.name for p in lowered(proto, Switches()).ctx.plans.values()} == {"dense", "softmax"}
    found = lowered(proto, Switches(recipes=frozenset({"softmax"})))
    assert {p.recipe.name for p in found.ctx.plans.values()} == {"dense"}
    assert "softmax: switched off" in skipped(found)


def test_a_group_that_is_off_goes_the_generic_way() -> None:
    found = lowered(models.two_dense(), Switches(groups=frozenset({"fused_matmul_add"})))
    recipes = {kernel.recipe for kernel in found.ctx.kernels.values() if kernel.calls}
    assert recipes == {"dense", "generic"} and skipped(found) == ["switched off"]


def test_a_record_that_is_off_is_not_followed(tmp_path: Path) -> None:
    proto, options, _ = next(bug for bug in BUGS if bug.name == "record").prepared(tmp_path)
    everything = lowered(proto, Switches(), **options)
    followed = [plan.record for plan in everything.ctx.plans.values() if plan.record]
    assert [place_of(one, everything.ctx.options) for one in followed] == [f"{tmp_path}/log.json:{n}" for n in (2, 3)]
    row = record_at(f"{tmp_path}/log.json:2").to_row()
    found = lowered(proto, Switches(records=frozenset({row})), **options)
    kept = [plan.record.session for plan in found.ctx.plans.values() if plan.record]
    assert kept == ["session 1"] and "record of conv2d_nchwc: switched off" in skipped(found)


def test_nodes_that_are_off_stay_on_the_cpu() -> None:
    options = {"offload": "systolic", "offload_options": {"when": "always"}}
    found = lowered(models.two_dense(), Switches(nodes=frozenset({"fc1"})), **options)
    assert found.ctx.offload is not None
    places = found.ctx.offload.places
    assert places["fc1"] == ("cpu", "fc1 is switched off") and places["fc2"][0].startswith("systolic_region")
    assert [one.anchors for one in found.ctx.offload.regions] == [(("fc2",),)]


def test_no_record_stands_there(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("# words\n")
    for place, said in (
        (f"{tmp_path}/log.json:1", "no record"),
        ("log.json", "FILE:LINE"),
        ("no.json:1", "cannot be read"),
    ):
        with pytest.raises(OptionError, match=said):
            record_at(place)
