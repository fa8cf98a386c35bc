"""Measuring through a tracker and servers on loopback; one of them is killed."""

import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.emulation import FOLDER, GRANTED
from tests.emulation.execution import MACHINE, ON_HARDWARE
from tests.schedules.narrow import needs
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.tuning.measure import MeasureError, RPCMeasurer

from .processes import KEY, SERVER, Process, tracked, until
from .stored_tasks import DOTS, INSTRUCTIONS, TILES, stored
from .tasks import PLUGIN, children, misbehaving

pytestmark = pytest.mark.long
pytest.importorskip("tornado")
#: A server whose CPU lacks the tile registers that its clients use: the process emulates them.
_EMULATING = f"from tests.emulation import granted\ngranted.emulate()\n{SERVER}"


@pytest.fixture(scope="module")
def fleet() -> Iterator[tuple[int, Sequence[Process]]]:
    """A tracker's port, and two servers, which the last test that uses them ends."""
    with tracked(2) as tracker:
        yield tracker


def measurer_of(port: int, machine: Machine, **options: Any) -> RPCMeasurer:
    return RPCMeasurer(machine, "127.0.0.1", port, KEY, 1, **options)


def check_all(measurer: RPCMeasurer, recipes: Sequence[Recipe], kinds: Sequence[str]) -> None:
    for recipe, kind in zip(recipes, kinds, strict=True):
        one = stored(recipe, kind, threads=2)
        results = list(measurer.measure(one.task, one.configs))
        assert len(results) == len(one.configs) and not [f for f in results if f.error or f.check is None], results


def test_a_server_asks_for_tile_registers(fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of TVM's; where it emulates, what it asks Linux is asked, and not answered by it."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    servers, plugins = (nullcontext(fleet), []) if ON_HARDWARE else (tracked(1, _EMULATING), [GRANTED])
    machine = MACHINE.with_threads(2)
    with servers as (port, _), measurer_of(port, machine, plugins=plugins, run_timeout=60) as measurer:
        check_all(measurer, TILES, ("bf16", "u8"))
    assert ON_HARDWARE or all((tmp_path / INSTRUCTIONS[kind]).exists() for kind in ("bf16", "u8"))


@pytest.mark.skipif(ON_HARDWARE, reason="this CPU has tile registers")
def test_a_server_without_tile_registers_is_said(fleet) -> None:
    one = stored(TILES[0], "bf16", threads=2)
    with (
        measurer_of(fleet[0], one.machine) as measurer,
        pytest.raises(MeasureError, match=f"a server under key '{KEY}': Linux gives this process no AMX"),
    ):
        list(measurer.measure(one.task, one.configs))


@needs["bf16"]
def test_bfloat16_goes_there_and_back(fleet) -> None:
    with measurer_of(fleet[0], Machine.detect().with_threads(2)) as measurer:
        check_all(measurer, DOTS, ("bf16", "bf16"))


def test_every_trial_is_accounted_for_when_a_server_dies(fleet) -> None:
    port, servers = fleet
    machine, before = Machine.detect(), set(children())
    configs = [{"how": name, "n": n} for n, name in enumerate(["right", "wrong"] * 12)]
    with RPCMeasurer(machine, "127.0.0.1", port, KEY, plugins=[PLUGIN], run_timeout=10) as measurer:
        results = []
        for result in measurer.measure(misbehaving(machine), configs):
            if len(results) == 4:
                servers[1].end()
            results.append(result)
        assert sorted(result.config["n"] for result in results) == list(range(24))
        lost = [result for result in results if result.error in ("crash", "run", "run-timeout")]
        assert len(lost) <= 1, lost
        for result in results:
            if result not in lost:
                assert result.error == ("" if result.config["how"] == "right" else "wrong"), result
                assert bool(result.costs) == (result.error == "")
        servers[0].end()
        with pytest.raises(MeasureError, match=f"no server under key '{KEY}'"):
            measurer_of(port, machine)
    assert set(children()) <= before


def test_one_that_ends_by_itself_is_reported_with_its_words() -> None:
    for code, words in (("raise SystemExit('no ports')", "1: no ports"), ("import os; os.abort()", "-6")):
        process = Process("-c", code)
        with pytest.raises(AssertionError, match=f"exit code {words}"):
            until(lambda: False, process)
        process.end()


@pytest.mark.parametrize(("program", "class_"), [("rpc_tracker", "tracker.Tracker"), ("rpc_server", "Server")])
def test_the_documented_commands_are_those_of_tvm(program: str, class_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, but for what they start."""
    text = (Path(__file__).parents[3] / "tuning_logs" / "README.md").read_text()
    (command,) = re.findall(rf"python -m tvm\.exec\.{program} (.*)", text)
    started = Mock()
    monkeypatch.setattr(f"tvm.rpc.{class_}", started)
    monkeypatch.setattr(sys, "argv", [program, *command.split()])
    runpy.run_module(f"tvm.exec.{program}", run_name="__main__")
    started.return_value.proc.join.assert_called_once_with()
    words = " ".join(map(str, (*started.call_args.args, *started.call_args.kwargs.values())))
    told = "0.0.0.0 9190 9191" if program == "rpc_tracker" else r"0.0.0.0 9090 9199 .*zen4 \('10.0.0.1', 9190\)"
    assert re.match(told, words), words


def test_a_tracker_that_is_not_there_is_said() -> None:
    with pytest.raises(MeasureError, match="does not answer"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, KEY)


def test_a_key_is_needed() -> None:
    with pytest.raises(OptionError, match="key"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, "")
