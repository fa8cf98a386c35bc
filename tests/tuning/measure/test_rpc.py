"""Measuring through a tracker and servers on loopback; one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.tuning.measure import MeasureError, RPCMeasurer
from tvm_ext.tuning.measure.rpc import servers_of

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
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("not within a minute")


def count(port: int) -> int:
    try:
        return servers_of("127.0.0.1", port, KEY)
    except MeasureError:
        return 0


@pytest.fixture
def fleet() -> Iterator[tuple[int, list[subprocess.Popen[bytes]]]]:
    """A tracker's port, and three servers."""
    tracker = start("-c", _TRACKER)
    assert tracker.stdout is not None
    port = int(re.sub(rb"\D", b"", tracker.stdout.readline()))
    server = ["-m", "tvm.exec.rpc_server", "--tracker", f"127.0.0.1:{port}", "--key", KEY, "--silent"]
    servers = [start(*server, "--host", "127.0.0.1", "--port", "19000", "--port-end", "19180") for _ in range(3)]
    try:
        until(lambda: count(port) == 3)
        yield port, servers
    finally:
        for process in [*servers, tracker]:
            if process.poll() is None:
                kill(process)


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


def test_a_tracker_that_is_not_there_is_said() -> None:
    with pytest.raises(MeasureError, match="does not answer"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, KEY)


def test_a_key_is_needed() -> None:
    with pytest.raises(OptionError, match="key"):
        RPCMeasurer(Machine.detect(), "127.0.0.1", 1, "")
