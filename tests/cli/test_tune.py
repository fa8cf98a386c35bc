"""`tvm-ext tune`: what it prints, its exit codes, and that no end of it loses a record."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

import tvm_ext
from tests.onnx_graphs import saved, two_products
from tests.tuning.conftest import short_rounds  # noqa: F401  (for all tests here)
from tests.tuning.measure.processes import KEY, tracked
from tests.tuning.measure.tasks import children
from tvm_ext.core.records.record_book import RecordBook, lines_of
from tvm_ext.tuning.measure import MeasureError
from tvm_ext.tuning.report import INTERRUPTED, TaskRow, TuneReport

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.fixture
def small(tmp_path):
    """Path of two matmuls, which have a space each."""
    return saved(two_products(33, 40, 64, 24), tmp_path / "small.onnx")


@pytest.fixture
def returned(monkeypatch):
    """Replaces the session: it returns `report`, or raises it."""
    state = {"report": TuneReport("m", "s", "l", (TaskRow("t", 1, 2, 3),)), "given": None}

    def tune(proto, **changes):
        state["given"] = changes
        if isinstance(state["report"], BaseException):
            raise state["report"]
        return state["report"]

    monkeypatch.setattr(tvm_ext, "tune", tune)
    return state


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def candidates(log):
    """What a log has, once a record; asserts that it can be read, but for the ends of killed sessions."""
    book = RecordBook.read([log])
    rows = [(r.task, r.recipe, json.dumps(r.config, sort_keys=True)) for r in book.records]
    assert len(rows) == len(set(rows)), "a candidate stands there twice"
    return rows


# ------------------------------------------------------------ what it prints
def test_help_shows_how_to_go_on_and_to_use_a_fleet(cli):
    code, out, _ = cli("tune", "--help")
    example = out.partition("example:")[2]
    assert code == 0 and "tvm-ext tune resnet18.onnx --minutes 10" in example
    assert "--resume" in example and "--rpc 10.0.0.1:9190" in example and "--records resnet18.tuning.json" in example


def test_a_dry_run_lists_tasks_and_measures_nothing(cli, small, tmp_path):
    log = tmp_path / "none.json"
    code, out, _ = cli("tune", small, "--dry-run", "--log", str(log), "--threads", "1")
    assert code == 0 and out.count("matmul") == 2 and "nothing was measured" in out and not log.exists()
    code, out, _ = cli("tune", small, "--dry-run", "--json", "--tasks", "matmul_y", "--threads", "1")
    (report,) = lines(out)
    assert code == 0 and report["event"] == "report" and len(report["tasks"]) == 1 and report["trials"] == 0


def test_arguments_are_handed_on(cli, returned, small):
    argv = ("--rpc", "10.0.0.1:9190", "--key", "zen4", "--trials", "7", "--tuner", "ga", "--seed", "3", "--goal", "0.8")
    assert cli("tune", small, *argv, "--shape", "x=1,2", "--resume")[0] == 0
    arguments = returned["given"]
    assert arguments["rpc"] == ("10.0.0.1", 9190, "zen4") and arguments["trials"] == 7 and arguments["minutes"] is None
    assert (
        arguments["tuner"] == "ga"
        and arguments["seed"] == 3
        and arguments["goal"] == 0.8
        and arguments["resume"] is True
    )
    assert arguments["shapes"] == {"x": (1, 2)} and "records" not in arguments


# ------------------------------------------------------------ exit codes
@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (TuneReport("m", "s", "l", (TaskRow("t", 1, 2, 3),)), 0),
        (TuneReport("m", "s", "l", (TaskRow("t", 1, 2, 3),), failed="the tuned model disagrees"), 1),
        (TuneReport("m", "s", "l", (TaskRow("t", 1, 2, unusable="no finite number"),)), 1),
        (TuneReport("m", "s", "l", (TaskRow("t", 1, 2, 3),), stopped=INTERRUPTED), 130),
        (MeasureError("a worker process does not start"), 1), (KeyboardInterrupt(), 130),
    ],
)  # fmt: skip
def test_the_exit_code_says_how_it_ended(cli, returned, small, report, expected):
    returned["report"] = report
    code, _, err = cli("tune", small)
    assert code == expected and "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--rpc", "nowhere", "--key", "k"], "--rpc HOST:PORT --key KEY"), (["--key", "k"], "both are needed"),
        (["--rpc", "h:9190"], "both are needed"), (["--rpc", "h:99999", "--key", "k"], "HOST:PORT"),
        (["--trials", "0"], "trials=0"), (["--minutes", "-1"], "minutes=-1"), (["--tasks", "conv3d"], "no task of"),
        (["--resume"], "there is no log"), (["--records", "x.json"], "compares with the defaults"),
        (["--target", "aarch64-linux-gnu:cortex-a72"], "nothing can be measured here"), (["--tuner", "luck"], "choose"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_exits_2(refused, small, tmp_path, argv, words):
    assert words in refused("tune", small, "--log", str(tmp_path / "none.json"), *argv)
    assert not (tmp_path / "none.json").exists()


def test_a_tracker_that_is_not_there_exits_1(refused, small, tmp_path):
    said = refused("tune", small, "--log", str(tmp_path / "l.json"), "--rpc", "127.0.0.1:1", "--key", "k", code=1)
    assert "does not answer" in said and "rpc_tracker" in said
    said = refused("tune", small, "--log", str(tmp_path / "no" / "l.json"), "--trials", "1", code=1)
    assert "no file can be written there" in said


# ------------------------------------------------------------ whole sessions
def arguments(small, log, trials):
    return ("tune", small, "--log", str(log), "--trials", str(trials), "--tuner", "random", "--threads", "1")


@pytest.mark.long
def test_a_session_with_json_and_its_continuation(cli, small, tmp_path):
    log = tmp_path / "l.json"
    code, out, _ = cli(*arguments(small, log, 5), "--json")
    events = lines(out)
    assert code == 0 and events[0]["event"] == "start" and events[-1]["event"] == "report"
    trials = [e for e in events if e["event"] == "trial"]
    assert len(trials) == 5 == events[-1]["trials"] == len(candidates(log))
    assert {e["event"] for e in events} <= {"start", "peak", "trial", "end", "report"}
    code, out, err = cli(*arguments(small, log, 3), "--resume")
    assert code == 0 and "5 candidates of it are known" in err and "3 trials in" in out
    assert len(candidates(log)) == 8 and len({record.session for record in RecordBook.read([log]).records}) == 2


#: `tvm-ext`, with short rounds.
COMMAND = "from tests.tuning.rounds import shorten; shorten(); from tvm_ext.cli import main; raise SystemExit(main())"


class Session:
    """`tvm-ext tune --json` in a process of its own."""

    def __init__(self, small, log, trials, *more):
        command = [sys.executable, "-c", COMMAND, *arguments(small, log, trials), "--json", *more]
        # A shell that runs the tests in the background ignores SIGINT, and its children with it.
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.events = []

    def until(self, trials):
        """Read until so many trials were told of, or the end."""
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.trials >= trials:
                return

    @property
    def trials(self):
        return sum(e["event"] == "trial" for e in self.events)

    def end(self):
        """Exit code and the text on stderr."""
        out, err = self.process.communicate(timeout=300)
        self.events += [json.loads(line) for line in out.splitlines() if line.endswith("}")]
        return self.process.returncode, err


def gone(pids):
    for _ in range(1200):
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.long
def test_ctrl_c_ends_it_with_a_report(small, tmp_path):
    log = tmp_path / "l.json"
    session = Session(small, log, 500)
    session.until(9)
    workers = children(session.process.pid)
    session.process.send_signal(signal.SIGINT)
    code, err = session.end()
    assert code == 130 and "Traceback" not in err and workers and gone(workers)
    report = session.events[-1]
    assert report["event"] == "report" and report["stopped"] == INTERRUPTED and report["trials"] == session.trials
    assert not RecordBook.read([log]).problems and len(candidates(log)) == session.trials >= 9


@pytest.mark.long
def test_killed_at_any_moment_no_record_is_lost_and_none_repeated(small, tmp_path):
    rng, log, told = random.Random(1), tmp_path / "l.json", 0
    for turn in range(2):
        session = Session(small, log, 500, *(["--resume"] if turn else []))
        session.until(rng.randint(1, 12))
        time.sleep(rng.uniform(0, 0.1))
        workers = children(session.process.pid)
        session.process.kill()
        assert session.end()[0] == -signal.SIGKILL and workers and gone(workers)
        told += session.trials
        # a record is in the log before it is told of: nothing of what was told is missing
        assert len(candidates(log)) >= told
        assert sum(bool(line.problem) for line in lines_of(log)) <= turn + 1  # a line cut off by each end at most
        told = len(candidates(log))
    code, err = (last := Session(small, log, 5, "--resume")).end()
    assert code == 0 and last.events[0]["known"] == told, err
    assert len(candidates(log)) == told + 5


# ------------------------------------------------------------ many machines
@pytest.mark.long
def test_a_fleet_on_loopback(cli, small, tmp_path):
    pytest.importorskip("tornado")
    log = tmp_path / "l.json"
    argv = ("tune", small, "--log", str(log), "--trials", "6", "--tuner", "random", "--threads", "2")
    with tracked(2) as (port, _):
        code, out, err = cli(*argv, "--rpc", f"127.0.0.1:{port}", "--key", KEY, "--json")
    report = lines(out)[-1]
    assert code == 0 and report["trials"] == 6 == len(candidates(log)), err
    good = [r for r in RecordBook.read([log]).records if not r.error]
    assert good and all(r.check is not None and r.check < 1e-5 and r.machine["threads"] == 2 for r in good)
