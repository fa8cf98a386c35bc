"""Measuring through a tracker and servers on loopback; one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulation import FOLDER, GRANTED
from tests.emulation.execution import ON_HARDWARE
from tests.schedules.narrow import needs
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.tuning.measure import MeasureError, RPCMeasurer
from tvm_ext.tuning.measure.rpc import servers_of

from .stored_tasks import DOTS, INSTRUCTIONS, TILES, stored
from .tasks import PLUGIN, children, misbehaving

pytestmark = pytest.mark.long
pytest.importorskip("tornado")
psutil = pytest.importorskip("psutil")
KEY = "loopback"
_TRACKER = """
import time
from tvm.rpc.tracker import Tracker
tracker = Tracker("127.0.0.1", port=19190, port_end=19990, silent=True)
print(tracker.port, flush=True)
time.sleep(600)
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0"}
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
        start_new_session=True,
    )  # fmt: skip


def kill(process: subprocess.Popen[bytes]) -> None:
    """The process and all below it."""
    below = psutil.Process(process.pid).children(recursive=True)
    for one in [process, *below]:
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1800):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("not within three minutes")


def count(port: int) -> int:
    try:
        return servers_of("127.0.0.1", port, KEY)
    except MeasureError:
        return 0


#: A server that has TVM alone, and one whose CPU lacks the tile registers that its clients use: it is TVM's too, in the
#: process that emulates them.
_SERVER = ("-m", "tvm.exec.rpc_server", "--silent", "--port", "19000", "--port-end", "19180", "--host", "127.0.0.1")
_EMULATING = """
import sys
from tests.emulation import granted
from tvm.rpc.server import PopenRPCServerState
granted.emulate()
host, port = sys.argv[sys.argv.index("--tracker") + 1].split(":")
key = sys.argv[sys.argv.index("--key") + 1]
PopenRPCServerState("127.0.0.1", 19000, 19180, tracker_addr=(host, int(port)), key=key, silent=True).thread.join()
"""


@contextmanager
def tracked(servers: int, command: Sequence[str] = _SERVER) -> Iterator[tuple[int, list[subprocess.Popen[bytes]]]]:
    """A tracker's port, and servers."""
    tracker = start("-c", _TRACKER)
    assert tracker.stdout is not None
    port = int(re.sub(rb"\D", b"", tracker.stdout.readline()))
    started = [start(*command, "--tracker", f"127.0.0.1:{port}", "--key", KEY) for _ in range(servers)]
    try:
        until(lambda: count(port) == servers)
        yield port, started
    finally:
        for process in [*started, tracker]:
            if process.poll() is None:
                kill(process)


@pytest.fixture
def fleet() -> Iterator[tuple[int, list[subprocess.Popen[bytes]]]]:
    """A tracker's port, and three servers."""
    with tracked(3) as found:
        yield found


def how(*names: str) -> list[dict[str, Any]]:
    return [{"how": name, "n": i} for i, name in enumerate(names)]


def test_every_trial_is_accounted_for_when_a_server_dies(fleet) -> None:
    port, servers = fleet
    machine, before = Machine.detect(), set(children())
    configs = how(*["right", "wrong"] * 12)
    with RPCMeasurer(machine, "127.0.0.1", port, KEY, plugins=[PLUGIN], run_timeout=10) as measurer:
        found = []
        for one in measurer.measure(misbehaving(machine), configs):
            if len(found) == 4:
                kill(servers[1])
            found.append(one)
        assert sorted(one.config["n"] for one in found) == list(range(24))
        lost = [one for one in found if one.error in ("crash", "run", "run-timeout")]
        assert len(lost) <= 1, lost
        for one in found:
            if one not in lost:
                assert one.error == ("" if one.config["how"] == "right" else "wrong"), one
                assert bool(one.costs) == (one.error == "")
        kill(servers[0])
        kill(servers[2])
        with pytest.raises(MeasureError, match=f"no server under key '{KEY}'"):
            list(RPCMeasurer(machine, "127.0.0.1", port, KEY).measure(misbehaving(machine), configs))
    assert set(children()) <= before | {server.pid for server in servers}


def test_a_server_asks_for_tile_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers of TVM's; where they emulate, what they ask Linux is asked, and not answered by it."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    plugins, command = ([], _SERVER) if ON_HARDWARE else ([GRANTED], ("-c", _EMULATING))
    with tracked(2, command) as (port, _):
        for recipe, kind in zip(TILES, ("bf16", "u8"), strict=True):
            one = stored(recipe, kind, threads=2)
            with RPCMeasurer(one.machine, "127.0.0.1", port, KEY, plugins=plugins, run_timeout=60) as measurer:
                found = list(measurer.measure(one.task, one.configs))
            assert len(found) == len(one.configs) and not [f for f in found if f.error or f.check is None], found
    assert ON_HARDWARE or all((tmp_path / INSTRUCTIONS[kind]).exists() for kind in ("bf16", "u8"))


@pytest.mark.skipif(ON_HARDWARE, reason="this CPU has tile registers")
def test_a_server_without_tile_registers_is_said() -> None:
    one = stored(TILES[0], "bf16", threads=2)
    with (
        tracked(1) as (port, _),
        RPCMeasurer(one.machine, "127.0.0.1", port, KEY) as measurer,
        pytest.raises(MeasureError, match=f"a server under key '{KEY}': Linux gives this process no AMX"),
    ):
        list(measurer.measure(one.task, one.configs))


@needs["bf16"]
def test_bfloat16_goes_there_and_back(fleet) -> None:
    for recipe in DOTS:
        one = stored(recipe, "bf16", threads=2)
        with RPCMeasurer(one.machine, "127.0.0.1", fleet[0], KEY) as measurer:
            found = list(measurer.measure(one.task, one.configs))
        assert len(found) == len(one.configs) and not [f for f in found if f.error or f.check is None], found


def test_a_tracker_that_is_not_there_is_said() -> None:
    with pytest.raises(MeasureError, match="does not answer"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, KEY)


def test_a_key_is_needed() -> None:
    with pytest.raises(OptionError, match="key"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, "")
