"""Sessions of decoders: caches of a fixed size, and such as grow, against onnxruntime token by token."""

import gc
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

import tvm_ext
from tests.onnx_graphs import node, random, value
from tests.state_graphs import LENGTH, ROWS, WIDTH, decoder, growing, growing_rows, tokens
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.runtime.model import CompiledModel

from .test_state_session import addresses, compiled


@pytest.fixture(scope="module", params=[(1, {}), ("S", {"dims": {"S": (1, 9)}}), ("S", {"specialize": {"S": (1,)}})])
def decoding(request: pytest.FixtureRequest) -> tuple[CompiledModel, onnxruntime.InferenceSession]:
    """A decoder for one token, for any number of them, and for any number with a program for one."""
    steps, options = request.param
    proto = decoder(steps)
    return compiled(proto, threads=2, **options), onnxruntime.InferenceSession(proto.SerializeToString())


def test_a_decoder_is_onnxruntimes_step_by_step(
    decoding: tuple[CompiledModel, onnxruntime.InferenceSession],
) -> None:  # fmt: skip
    program, reference = decoding
    session, other, total = program.session(), program.session(), 0
    memory = addresses(session)
    assert len(memory) == 2  # one buffer a state
    past = dict.fromkeys(program.state.values(), np.zeros((1, 2, LENGTH, WIDTH), np.float32))
    for steps in (5, 1, 1, 3, 1, 9, 1, 1, 1, 1) if program.symbols else (1,) * LENGTH:
        total += steps
        feeds = tokens(steps, total)
        want, *present = reference.run(None, {**feeds, **past})
        np.testing.assert_allclose(session.step(feeds)["y"], want, 1e-5, 2e-6)
        np.testing.assert_allclose(program.run({**feeds, **past})["y"], want, 1e-5, 2e-6)
        past = dict(zip(past, present, strict=True))
    assert total == LENGTH and addresses(session) == memory
    with pytest.raises(InputError, match=f"'lengths': rows {LENGTH} to {LENGTH} .* rows 0 to {LENGTH - 1}"):
        session.step(tokens(1, LENGTH + 1))
    assert all(np.array_equal(session.state[name][:, :, :total], past[name]) for name in past)  # as it was
    session.reset()
    first = session.step(tokens(1, 1))["y"]
    assert np.array_equal(first, other.step(tokens(1, 1))["y"])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_decoder_of_float16_is_updated_in_place(threads: int) -> None:
    proto = decoder(1, halves=True)
    program, reference = compiled(proto, threads=threads), onnxruntime.InferenceSession(proto.SerializeToString())
    assert len(program.metadata.programs[0].updates) == 2
    session, past = (
        program.session(),
        dict.fromkeys(program.state.values(), np.zeros((1, 2, LENGTH, WIDTH), np.float16)),
    )
    for total in range(1, LENGTH + 1):
        feeds = tokens(1, total)
        want, *present = reference.run(None, {**feeds, **past})
        past = dict(zip(past, present, strict=True))
        y = session.step(feeds)["y"]
        assert y.dtype == np.float16
        np.testing.assert_allclose(y.astype(np.float32), want.astype(np.float32), 4e-3, 4e-3)
        for name, rows in session.state.items():
            np.testing.assert_allclose(rows, past[name], 2e-3, 2e-3)


def test_an_exported_decoder_has_its_states(
    decoding: tuple[CompiledModel, onnxruntime.InferenceSession], tmp_path: Path
) -> None:  # fmt: skip
    program = decoding[0]
    program.export(tmp_path / "decoder.so")
    sessions = [loaded.session() for loaded in (program, tvm_ext.load(tmp_path / "decoder.so"))]
    for total in (1, 2, 3):
        results = [session.step(tokens(1, total))["y"] for session in sessions]
        assert np.array_equal(*results)
    with pytest.raises(InputError, match="'lengths'"):
        sessions[1].step(tokens(1, LENGTH + 1))


@pytest.mark.parametrize(("batch", "cosines"), [(2, 0), (2, 5), ("N", 0)])
def test_a_refused_step_of_several_sequences_changes_none(batch: int | str, cosines: int) -> None:
    loaded, count = compiled(decoder(1, rows=6, batch=batch, cosines=cosines)), 2 if batch == 2 else 5
    assert all(program.batch != 5 for program in loaded.metadata.programs)  # 5 are composed of several calls
    session = loaded.session({"past.key": np.zeros((count, 2, 6, WIDTH), np.float32)})

    def feeds(lengths: list[int], seed: int = 0) -> dict[str, np.ndarray]:
        lengths = [1] * (count - 2) + lengths
        x = random(count, 1, WIDTH, seed=seed)
        return {"x": x, "lengths": np.int32(lengths), "total": np.array(max(lengths) + 1, "int32")}

    for row in range(4):
        session.step(feeds([row, row]))
    before = session.state
    for seed, lengths in enumerate(([1, 9], [1, cosines or 6], [9, 1], [1, -2]), 1):
        number = count - 2 if lengths[0] > 1 else count - 1  # of the whole batch, whatever calls it is composed of
        with pytest.raises(InputError, match=f"'lengths': rows .* of sequence {number} "):
            session.step(feeds(lengths, seed))
        assert all(np.array_equal(array, before[name]) for name, array in session.state.items())


def test_a_refused_step_changes_no_other_state() -> None:
    """Not even a ring of rows that is written before the cache refuses a length."""
    proto = decoder(1, rows=6)
    proto.graph.input.extend([value("ring", (4, WIDTH)), value("at", (1, 1), TensorProto.INT64)])
    proto.graph.output.append(value("ring_new", (4, WIDTH)))
    for place, reshape in enumerate((node("Squeeze", "x", "row"), node("Unsqueeze", "row first", "rows"),
                                 node("ScatterND", "ring at rows", "ring_new"))):  # fmt: skip
        proto.graph.node.insert(place, reshape)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
    session = compiled(proto).session()
    assert {*session._states} == {"past.key", "past.value", "ring"}
    assert len(addresses(session)) == 3  # all are written in place
    for total in range(1, 5):
        session.step({**tokens(1, total), "at": np.array([[total - 1]])})
    before = session.state
    with pytest.raises(InputError, match="'lengths'"):
        session.step({**tokens(1, 9), "at": np.array([[0]])})
    assert all(np.array_equal(array, before[name]) for name, array in session.state.items())
    session.step({**tokens(1, 5), "at": np.array([[0]])})
    assert np.array_equal(session.state["ring"][0], tokens(1, 5)["x"][0, 0])


def two_caches(late: bool, steps: int | str) -> onnx.ModelProto:
    """Two caches, of 12 and of 6 rows, each with lengths of its own; `late`: those of the second are computed of what
    attention over the first gives."""
    model = decoder(steps, rows=12)
    other = onnx.ModelProto.FromString(decoder(steps, rows=6).SerializeToString())
    renamed = onnx.compose.add_prefix(other, "b.", rename_functions=False)
    for tensor in renamed.graph.input:
        if tensor.name.split(".")[1] == "past" or (tensor.name == "b.lengths" and not late):
            model.graph.input.append(tensor)
    model.graph.output.extend(renamed.graph.output)
    model.graph.initializer.extend(renamed.graph.initializer)
    if late:
        model.graph.node.extend([node("ReduceMax", "y", "most", keepdims=0), node("Mul", "most zero", "nothing"),
                                 node("Cast", "nothing", "none", to=TensorProto.INT32),
                                 node("Add", "lengths none", "b.lengths")])  # fmt: skip
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
    for maker in renamed.graph.node:
        maker.input[:] = [{"b.x": "x", "b.total": "total"}.get(name, name) for name in maker.input]
        model.graph.node.append(maker)
    return model


@pytest.mark.parametrize(("late", "steps"), [(False, 1), (False, "S"), (True, 1)])
def test_a_refused_step_changes_no_cache_of_another_length(late: bool, steps: int | str) -> None:
    pairs = {f"{at}present.{what}": f"{at}past.{what}" for at in ("", "b.") for what in ("key", "value")}
    program = compiled(two_caches(late, steps), pairs, **({"dims": {"S": (1, 4)}} if steps == "S" else {}))
    session = program.session()
    assert len(addresses(session)) == (6 if late else 4)  # the first cache is copied where it must be

    def feeds(total: int, other: int) -> dict[str, np.ndarray]:
        more = {} if late else {"b.lengths": np.int32([other - 1])}
        return {**tokens(1, 4), "lengths": np.int32([total - 1]), **more}

    for total in range(2, 5):
        session.step(feeds(total, total))
    before = session.state
    for lengths in [(9, 9)] if late else [(5, 9), (5, -1), (13, 5), (-1, 5)]:
        with pytest.raises(InputError, match="lengths': rows"):
            session.step(feeds(*lengths))
        assert all(np.array_equal(array, before[name]) for name, array in session.state.items())
    session.step(feeds(5, 5))
    assert all(array[:, :, 4].any() and not array[:, :, 5:].any() for array in session.state.values())


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_lengths_at_the_ends_of_their_type_are_refused(steps: int) -> None:
    session = compiled(decoder("S", rows=6), dims={"S": (1, 5)}).session()
    ends = np.iinfo("int32")
    for length in (ends.max, ends.max - 1, ends.max - 5, ends.min, ends.min + 1, ends.min + 5, 6, -1):
        with pytest.raises(InputError, match="'lengths': rows"):
            session.step({**tokens(steps, 7), "lengths": np.int32([length])})
    assert not any(array.any() for array in session.state.values())
    session.step({**tokens(steps, 7), "lengths": np.int32([5])})


def test_a_step_of_a_decoder_keeps_no_memory(
    decoding: tuple[CompiledModel, onnxruntime.InferenceSession],
) -> None:  # fmt: skip
    session, feeds = decoding[0].session(), [tokens(1, total) for total in range(1, LENGTH + 1)]

    def steps(count: int) -> int:
        for number in range(count):
            session.step(feeds[number % LENGTH])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = steps(50)
        grown = steps(2000) - before
        assert grown < 2000 * sys.getsizeof(object()), "not even the smallest object a step is kept"
    finally:
        tracemalloc.stop()


def test_bytes_written_do_not_depend_on_the_room_in_a_cache() -> None:
    moved = []
    for rows in (LENGTH, 8 * LENGTH):
        kernels = compiled(decoder(1, rows)).report["kernels"]
        # the smaller number is that of values, which need no cosines
        moved.append(min(k["bytes"] for k in kernels if k["recipe"] == "cache_append"))
    assert moved[0] == moved[1] < 8 * 2 * WIDTH * LENGTH


def test_a_state_of_a_size_that_is_known_at_run_time_is_refused() -> None:
    proto = decoder(1)
    for tensor in (*proto.graph.input, *proto.graph.output):
        if "." in tensor.name:
            tensor.type.tensor_type.shape.dim[2].dim_param = "P"
    with pytest.raises(OptionError, match=r"input 'past.key' is float32\[1, 2, P, 16\], and a state has one size"):
        compiled(proto, dims={"P": (1, 32)})


def test_a_past_without_rows_does_not_grow() -> None:
    shapes = dict.fromkeys(("past_key", "past_value"), (1, 2, 0, 16))
    for state in ({"present_key": "past_key", "present_value": "past_value"}, "auto"):
        with pytest.raises(OptionError, match=r"input 'past_key' is float32\[1, 2, 0, 16\]"):
            compiled(growing(), state, dims={"S": (1, 8)}, shapes=shapes)


@pytest.mark.parametrize(
    ("low", "more"),
    [(0, {}), (1, {"specialize": {"S": (1,)}}), (1, {"specialize": {"P": (6, 40)}}),
     (0, {"specialize": {"P": (5,), "S": (1,)}})],
)  # fmt: skip
def test_a_state_that_grows(low: int, more: dict[str, Any], tmp_path: Path) -> None:
    proto = growing()
    pairs = {"present_key": "past_key", "present_value": "past_value"}
    program = compiled(proto, pairs, threads=2, dims={"S": (1, 8), "P": (low, 40)}, **more)
    program.export(tmp_path / "growing.so")
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    sessions = [loaded.session() for loaded in (program, tvm_ext.load(tmp_path / "growing.so"))]
    memory = {state.write.ctypes.data for state in sessions[0]._states.values()}
    past = dict.fromkeys(pairs.values(), np.zeros((1, 2, low, 16), np.float32))
    for number, steps in enumerate((5, 1, 1, 8, 8, 1, 1, 8, 1)):
        x = random(1, steps, 32, seed=number)
        want, *present = reference.run(None, {"x": x, **past})
        for y in (program.run({"x": x, **past})["y"], *(session.step({"x": x})["y"] for session in sessions)):
            np.testing.assert_allclose(y, want, 1e-5, 2e-6)
        past = dict(zip(past, present, strict=True))
    for name, kept in sessions[0].state.items():
        np.testing.assert_allclose(kept, past[name], 1e-5, 2e-6)
    assert {state.write.ctypes.data for state in sessions[0]._states.values()} == memory
    first = sessions[0].state
    sessions[0].step({"x": random(1, 8, 32)})
    with pytest.raises(InputError, match=rf"'past_key' .*: P is {42 + low}; it can be"):
        sessions[0].step({"x": x})
    sessions[0].reset(first)
    assert np.array_equal(sessions[0].step({"x": x})["y"], sessions[1].step({"x": x})["y"])
    with pytest.raises(InputError, match="state 'past_key' has a size of 41 along axis 2"):
        sessions[0].reset({"past_key": random(1, 2, 41, 16)})


@pytest.mark.parametrize("rows", [(5, 11), (11, 5), (5, 0), (5, 4), (5, None), (None, 5)])
def test_a_refused_reset_of_states_that_grow_changes_none(rows: tuple[int | None, ...]) -> None:
    pairs = {"present_key": "past_key", "present_value": "past_value"}
    program = compiled(growing(), pairs, dims={"S": (1, 8), "P": (1, 10)})
    session = program.session(dict.fromkeys(pairs.values(), random(1, 2, 3, 16)))
    values = zip(pairs.values(), rows, strict=True)
    initial = {name: random(1, 2, size, 16) for name, size in values if size is not None}
    for start in (session.reset, program.session):
        with pytest.raises(InputError, match="has a size of"):
            start(initial)
    assert all(np.array_equal(array, random(1, 2, 3, 16)) for array in session.state.values())
    session.step({"x": random(1, 1, 32)})
    assert {array.shape[2] for array in session.state.values()} == {4}


@pytest.mark.parametrize("specialize", [{}, {"S": (1, 8)}])
def test_a_step_of_a_state_that_grows_writes_new_rows_only(specialize: dict[str, Any]) -> None:
    pairs = {"present_key": "past_key", "present_value": "past_value"}
    program = compiled(growing(), pairs, dims={"S": (1, 8), "P": (1, 40)}, specialize=specialize)
    session = program.session()
    session.step({"x": random(1, 8, 32)})
    before = session.state
    for state in session._states.values():
        state.read[...] = np.nan  # what is not read and not written stays
    session.step({"x": random(1, 1, 32)})
    after = session.state
    for name in before:
        assert after[name].shape[2] == before[name].shape[2] + 1
        assert np.isnan(after[name][:, :, :-1]).all() and np.isfinite(after[name][:, :, -1]).all()
    sized = program._callers._idle[0]._sized
    assert sized is not None
    lent = {state.write.ctypes.data for state in session._states.values()}
    for held in sized._memory.values():
        assert not {array.ctypes.data for array in (*held.inputs, *held.outputs) if array is not None} & lent


@pytest.mark.parametrize(
    ("steps", "dims", "more"),
    [
        ("S", {"S": (1, 2), "P": (1, 9)}, {"specialize": {"S": (1,)}}),
        ("S", {"S": (1, 2), "P": (0, 9)}, {"specialize": {"P": (4, 9)}}),
        (1, {"P": (0, 6)}, {}),
        (1, {"P": (1, 6)}, {"specialize": {"P": (3, 6)}}),
    ],
)
@pytest.mark.parametrize("how", ROWS)
def test_a_state_that_grows_wherever_it_is_read(how: str, steps: int | str, dims: Any, more: dict[str, Any]) -> None:
    """From the first size to the bound, where arrays of the input and the output lie in the memory of the session."""
    proto, bound = growing_rows(how, steps), dims["P"][1]
    loaded = compiled(proto, dims=dims, **more)
    reference, session = onnxruntime.InferenceSession(proto.SerializeToString()), loaded.session()
    past, number = np.zeros((dims["P"][0], 8), np.float32), 0
    while len(past) <= bound:
        x = random(1 if steps == 1 else 1 + number % 2, 8, seed=number)
        want, present = reference.run(None, {"x": x, "past_key": past})
        for y in (loaded.run({"x": x, "past_key": past})["y"], session.step({"x": x})["y"]):
            np.testing.assert_allclose(y, want, 1e-4, 1e-4)
        np.testing.assert_allclose(session.state["past_key"], present, 1e-4, 1e-4)
        past, number = present, number + 1
    in_place = [bool(program.updates) for program in loaded.metadata.programs]
    assert in_place[0] == (how == "appended"), "what is read besides is made anew"
