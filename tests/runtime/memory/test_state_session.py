"""Sessions: states that stay between calls, step by step; their memory, their independence, what is refused."""

import gc
import itertools
import pickle
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.runtime.programs import metadata
from tests.state_graphs import HEADS, LENGTH, WIDTH, cached, expected, position, recurrent
from tvm_ext.core.errors import InputError, OptionError, RunError
from tvm_ext.runtime.memory.state_session import StateSession
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.spec import Program


def compiled(proto: onnx.ModelProto, state: Any = "auto", **options: Any) -> CompiledModel:
    return tvm_ext.compile(proto, state=state, **{"cache": False, "threads": 1, **options})


@pytest.fixture(scope="module")
def cache() -> CompiledModel:
    return compiled(cached("ScatterND"))


@pytest.fixture(scope="module")
def lstm() -> CompiledModel:
    return compiled(recurrent("LSTM"))


def addresses(session: StateSession) -> set[int]:
    """Where the memory of the states lies."""
    states = session._states.values()
    return {array.ctypes.data for state in states for array in (state.read, state.write)}


@pytest.mark.parametrize(("kind", "threads"), [("LSTM", 1), ("GRU", 2)])
def test_a_streaming_layer_is_onnxruntimes_step_by_step(kind: str, threads: int) -> None:
    proto = recurrent(kind)
    program, reference = compiled(proto, threads=threads), onnxruntime.InferenceSession(proto.SerializeToString())
    names = list(program.state.values())
    assert program.state == {f"{name}n": name for name in names} and len(names) == (2 if kind == "LSTM" else 1)
    session = program.session()
    states = session.state
    for step in range(50):
        x = random(1, 2, 12, seed=step)
        y, *new = reference.run(None, {"x": x, **states})
        states = dict(zip(names, new, strict=True))
        outputs = session.step({"x": x})
        assert list(outputs) == ["y"] and np.allclose(outputs["y"], y, atol=1e-5), step
        assert all(np.allclose(session.state[name], states[name], atol=1e-5) for name in names), step


@pytest.mark.parametrize("update", ["ScatterND", "Where"])
def test_a_cache_of_keys_fills_up(update: str) -> None:
    session, past = compiled(cached(update)).session(), np.zeros((HEADS, LENGTH, WIDTH), np.float32)
    (state,) = session._states.values()
    assert state.read is state.write, "one buffer, of which a step writes a row"
    for at in (*range(LENGTH), 3, 0):
        x = random(HEADS, 1, WIDTH, seed=at)
        y, past = expected(x, at, past)
        assert np.allclose(session.step({"x": x, "at": position(update, at)})["y"], y, atol=1e-5)
        assert np.allclose(session.state["past"], past, atol=1e-5)


def test_sessions_are_independent_and_start_anew(lstm: CompiledModel) -> None:
    first, second, xs = lstm.session(), lstm.session(), [random(1, 2, 12, seed=seed) for seed in range(6)]
    alone = [first.step({"x": x})["y"] for x in xs]
    kept = first.state
    first.reset()
    assert not any(array.any() for array in first.state.values())
    mixed = []
    for x in xs:
        mixed.append(first.step({"x": x})["y"])
        second.step({"x": -x})
    assert np.array_equal(mixed, alone)
    assert not np.array_equal(second.state["h"], first.state["h"])
    third = lstm.session(kept)  # goes on where the first one was
    assert np.array_equal(third.step({"x": xs[0]})["y"], first.step({"x": xs[0]})["y"])
    third.reset({"c": kept["c"]})
    assert np.array_equal(third.state["c"], kept["c"]) and not third.state["h"].any()
    third.state["c"][...] = 7
    assert np.array_equal(third.state["c"], kept["c"]), "a state is a copy"


def test_pairs_are_in_the_file_and_a_session_outlives_its_model(cache: CompiledModel, tmp_path: Path) -> None:
    cache.export(tmp_path / "a.so")
    loaded, copied = tvm_ext.load(tmp_path / "a.so"), pickle.loads(pickle.dumps(cache))
    x, at = random(HEADS, 1, WIDTH), position("ScatterND", 1)
    y, past = expected(x, 1, np.zeros((HEADS, LENGTH, WIDTH), np.float32))
    for program in (loaded, copied):
        assert program.state == {"present": "past"} and program.metadata == cache.metadata
    sessions = [loaded.session(), copied.session()]
    gone = weakref.ref(copied)
    del program, loaded, copied
    for session in sessions:
        assert np.allclose(session.step({"x": x, "at": at})["y"], y, atol=1e-5)
        assert np.allclose(session.state["past"], past, atol=1e-5)
    del session, sessions
    gc.collect()
    assert gone() is None


def test_steps_take_no_memory(cache: CompiledModel, lstm: CompiledModel) -> None:
    for program, feeds in (
        (cache, {"x": random(HEADS, 1, WIDTH), "at": position("ScatterND", 1)}), (lstm, {"x": random(1, 2, 12)})
    ):  # fmt: skip
        session = program.session()
        tracemalloc.start()
        for _ in range(100):
            session.step(feeds)
        before, (taken, _) = addresses(session), tracemalloc.get_traced_memory()
        for _ in range(10_000):
            session.step(feeds)
        gc.collect()
        later, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert later - taken < 10_000 * sys.getsizeof(object()), "not even the smallest object a step is kept"
        assert addresses(session) == before


def test_a_step_lends_kernels_the_states_themselves(lstm: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lstm.session()
    written, call = [], session._call
    monkeypatch.setattr(
        session,
        "_call",
        lambda arrays, rows, hook, into: written.append((arrays, into)) or call(arrays, rows, hook, into),
    )
    for _ in range(3):
        session.step({"x": random(1, 2, 12)})
    buffers = [(state.taken, state.output) for state in session._states.values()]
    for (_, into), (arrays, _) in itertools.pairwise(written):
        assert all(into[output] is arrays[taken] for taken, output in buffers), "what a step wrote, the next one reads"
    assert {output for output, _ in lstm.metadata.programs[0].destinations} >= {output for _, output in buffers}


def test_what_no_kernel_can_write_in_place_is_copied() -> None:
    """A bfloat16 state, and a state that is an output once more."""
    bf16 = onnx.TensorProto.BFLOAT16
    nodes = [node("Cast", "s", "f", to=1), node("Add", "f x", "g"), node("Cast", "g", "s_out", to=bf16),
             node("Add", "t x", "t_out"), node("Reshape", "t_out flat", "y")]  # fmt: skip
    ins = [value("x", (2, 3)), value("s", (2, 3), bf16), value("t", (2, 3))]
    outs = [value("y", (6,)), value("s_out", (2, 3), bf16), value("t_out", (2, 3))]
    program = compiled(model(nodes, ins, outs, {"flat": np.array([-1])}))
    session, one = program.session({"t": np.full((2, 3), 0.5, np.float32)}), np.ones((2, 3), np.float32)
    for step in range(1, 5):
        y = session.step({"x": one})["y"]
        y[...] = np.nan  # it is the caller's
        assert np.array_equal(session.state["t"], np.full((2, 3), step + 0.5, np.float32))
        assert session.state["s"].dtype == ml_dtypes.bfloat16 and np.all(session.state["s"].astype("f4") == step)
    assert (2, (2, 3)) in program.metadata.programs[0].destinations, "the state is written, the output copied"


def test_a_symbolic_batch_has_the_size_of_its_first_states() -> None:
    program = compiled(recurrent("GRU", "N"), shapes={"x": (1, "N", 12), "h": (1, "N", 20)}, specialize={"N": (1, 4)})
    static = compiled(recurrent("GRU", 7))
    first = random(1, 7, 20)
    session, fixed = program.session({"h": first}), static.session({"h": first})
    for step in range(4):  # 7 rows are composed of 4, and 3 of 4
        x = random(1, 7, 12, seed=step)
        assert np.allclose(session.step({"x": x})["y"], fixed.step({"x": x})["y"], atol=1e-5)
    with pytest.raises(InputError):
        session.step({"x": random(1, 3, 12)})
    with pytest.raises(InputError) as error:
        program.session()
    assert "initial" in error.value.fix
    session.reset()
    assert session.state["h"].shape == (1, 7, 20) and not session.state["h"].any()
    none = program.session({"h": random(1, 0, 20)})
    x = random(1, 0, 12)
    for _ in range(2):
        assert none.step({"x": x})["y"].shape == program.run({"x": x, "h": first[:, :0]})["y"].shape
        assert none.state["h"].shape == (1, 0, 20)


def test_rows_of_a_state_that_are_no_whole_batch() -> None:
    pair: list[Any] = [("h", ("2*N", 3), "float32"), ("hn", ("2*N", 3), "float32")]
    described = metadata(pair[:1], pair[1:], programs=(Program("main_n1", (), batch=1),), state=(("hn", "h"),))

    def session(rows: int) -> StateSession:
        return StateSession(lambda _: ([], 0), lambda *_: [], described, {"h": np.ones((rows, 3), np.float32)})

    for rows in (0, 4):
        assert session(rows).state["h"].shape == (rows, 3)
    with pytest.raises(InputError, match="no whole batch"):
        session(3)


def test_several_threads_take_turns(lstm: CompiledModel) -> None:
    session, alone, x = lstm.session(), lstm.session(), random(1, 2, 12)
    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(session.step, [{"x": x}] * 200)]) == 200
    for _ in range(200):
        alone.step({"x": x})
    assert all(np.array_equal(session.state[name], alone.state[name]) for name in ("h", "c"))


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, ("missing ['x']",)),
        ({"x": random(1, 2, 12), "h": random(1, 2, 20)}, ("unknown ['h']", "reset()")),
        ({"x": random(1, 3, 12)}, ("'x'", "[1, 2, 12]")),
        ({"x": random(1, 2, 12).astype("f8")}, ("'x'", "float64")),
    ],
)
def test_inputs_that_do_not_fit_leave_the_states_alone(lstm: CompiledModel, feeds: Any, words: tuple[str, ...]) -> None:
    session = lstm.session({"h": random(1, 2, 20)})
    with pytest.raises(InputError) as error:
        session.step(feeds)
    assert all(word in str(error.value) for word in words) and np.array_equal(session.state["h"], random(1, 2, 20))


@pytest.mark.parametrize(
    ("initial", "words"),
    [
        ({"x": random(1, 2, 12)}, ("no state 'x'", "states: h, c")),
        ({"h": random(1, 2, 21)}, ("'h'", "float32[1, 2, 21]", "float32[1, 2, 20]")),
        ({"c": random(1, 2, 20).astype("f8")}, ("'c'", "float64", "float32[1, 2, 20]")),
    ],
)
def test_first_values_that_do_not_fit(lstm: CompiledModel, initial: Any, words: tuple[str, ...]) -> None:
    session = lstm.session()
    for start in (lstm.session, session.reset):
        with pytest.raises(InputError) as error:
            start(initial)
        assert all(word in str(error.value) for word in words)


def test_a_model_without_states_has_no_session() -> None:
    program = compiled(recurrent("GRU"), None)
    assert program.state == {}
    with pytest.raises(OptionError, match="has no states"):
        program.session()


def test_a_closed_session_and_one_that_stopped_half_way(cache: CompiledModel, lstm: CompiledModel) -> None:
    with lstm.session() as session:
        session.step({"x": random(1, 2, 12)})
    for use in (lambda: session.step({"x": random(1, 2, 12)}), lambda: session.state, session.reset):
        with pytest.raises(RunError, match="closed"):
            use()

    def stopping(*_: Any) -> Any:
        raise RunError("stopped")

    feeds = {"x": random(HEADS, 1, WIDTH), "at": position("ScatterND", 1)}
    for program, inputs, lost in ((cache, feeds, True), (lstm, {"x": random(1, 2, 12)}, False)):
        session = program.session()
        session.step(inputs)
        call, session._call = session._call, stopping
        with pytest.raises(RunError, match="stopped"):
            session.step(inputs)
        session._call = call
        if lost:
            with pytest.raises(RunError, match="reset"):
                session.step(inputs)
            session.reset()
        session.step(inputs)


def test_later_steps_look_at_what_is_fed_alone(cache: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """By calls whose arguments are ready; values of other types or from another thread's machine are as good."""
    session, past = cache.session(), np.zeros((HEADS, LENGTH, WIDTH), np.float32)
    checks = list[int]()
    monkeypatch.setattr(session, "_fit", lambda values, fit=session._fit: checks.append(1) or fit(values))
    for at in range(4):
        x = random(HEADS, 1, WIDTH, seed=at)
        y, past = expected(x, at, past)
        got = session.step({"x": x.astype(">f4") if at == 2 else x, "at": position("ScatterND", at)})
        assert np.allclose(got["y"], y, atol=1e-5) and np.allclose(session.state["past"], past, atol=1e-5)
    assert len(checks) == 2, "the first one, and that of another order of bytes"
    assert session._resident is not None
    assert all(call for calls in session._resident.ready.values() for call in calls.values())
    alive = weakref.ref(x)
    with pytest.raises(InputError):
        session.step({"x": x[:, :, 1:], "at": position("ScatterND", 0)})
    del x
    gc.collect()
    assert alive() is None, "a session holds none of its caller's arrays"
    last = {"x": random(HEADS, 1, WIDTH, seed=9), "at": position("ScatterND", 4)}
    with ThreadPoolExecutor(1) as pool:
        results = [pool.submit(session.step, last).result()]
    y, past = expected(last["x"], 4, past)
    assert np.allclose(results[0]["y"], y, atol=1e-5) and np.allclose(session.state["past"], past, atol=1e-5)
    memory = weakref.ref(next(iter(session._states.values())).read)
    session.close()
    gc.collect()
    assert memory() is None
