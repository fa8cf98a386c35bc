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
from tvm_ext.driver.lower import Lowered
from tvm_ext.driver.programs import lower
from tvm_ext.driver.records import place_of, record_at


def lowered(proto: Any, off: Switches, **options: Any) -> Lowered:
    chosen = CompileOptions.of(**{"threads": 1, "records": None, **options})
    return lower(proto, chosen, Machine.detect(None, 1), instruments=Instruments(switches=off))


def skipped(lowering: Lowered) -> list[str]:
    return [
        event.detail for report in lowering.ctx.reports if report.name == "choose-recipes" for event in report.skipped
    ]


def test_a_recipe_that_is_off_takes_nothing() -> None:
    proto = models.softmax()
    assert {p.recipe.name for p in lowered(proto, Switches()).ctx.plans.values()} == {"dense", "softmax"}
    lowering = lowered(proto, Switches(recipes=frozenset({"softmax"})))
    assert {p.recipe.name for p in lowering.ctx.plans.values()} == {"dense"}
    assert "softmax: switched off" in skipped(lowering)


def test_a_group_that_is_off_goes_the_generic_way() -> None:
    lowering = lowered(models.two_dense(), Switches(groups=frozenset({"fused_matmul_add"})))
    recipes = {kernel.recipe for kernel in lowering.ctx.kernels.values() if kernel.calls}
    assert recipes == {"dense", "generic"} and skipped(lowering) == ["switched off"]


def test_a_record_that_is_off_is_not_followed(tmp_path: Path) -> None:
    proto, options, _ = BUGS["record"].prepared(tmp_path)
    everything = lowered(proto, Switches(), **options)
    followed = [plan.record for plan in everything.ctx.plans.values() if plan.record]
    assert [place_of(record, everything.ctx.options) for record in followed] == [
        f"{tmp_path}/log.json:{n}" for n in (2, 3)
    ]
    row = record_at(f"{tmp_path}/log.json:2").to_row()
    lowering = lowered(proto, Switches(records=frozenset({row})), **options)
    kept = [plan.record.session for plan in lowering.ctx.plans.values() if plan.record]
    assert kept == ["session 1"] and "record of conv2d_nchwc: switched off" in skipped(lowering)


def test_nodes_that_are_off_stay_on_the_cpu() -> None:
    options = {"offload": "systolic", "offload_options": {"when": "always"}}
    lowering = lowered(models.two_dense(), Switches(nodes=frozenset({"fc1"})), **options)
    assert lowering.ctx.offload is not None
    places = lowering.ctx.offload.places
    assert places["fc1"] == ("cpu", "fc1 is switched off") and places["fc2"][0].startswith("systolic_region")
    assert [region.anchors for region in lowering.ctx.offload.regions] == [(("fc2",),)]


def test_no_record_stands_there(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("# words\n")
    places = {f"{tmp_path}/log.json:1": "no record", "log.json": "FILE:LINE", "no.json:1": "cannot be read"}
    for place, said in places.items():
        with pytest.raises(OptionError, match=said):
            record_at(place)
