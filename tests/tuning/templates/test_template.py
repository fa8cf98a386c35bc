"""Templates: their tasks, and every kind of configuration built and compared with numpy."""

import json
import math
import textwrap

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_ext
from tvm_ext.core.errors import OptionError
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.features import LOOP_FEATURES
from tvm_ext.tuning.templates import template as template_module
from tvm_ext.tuning.templates.entities import InstantiationError
from tvm_ext.tuning.tuners import make_tuner

from ..small_templates import CASES, batched, direct, matmul, tiled


def run(module: tvm.IRModule, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    out = tvm.runtime.tensor(np.full(shape, np.nan, dtype="float32"))
    built = tvm.tirx.build(module, target="llvm")
    built["main"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


@pytest.mark.parametrize("case", CASES)
def test_configurations_compute_what_numpy_does(case: str) -> None:
    """Of each space some points, with more than one choice of each knob."""
    template, args, shapes, compute = CASES[case]
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    want = compute(*(array.astype("float64") for array in arrays))
    task = template.task(*args)
    built, refused, seen = 0, 0, {name: set() for name in task.space.knobs}
    for config in task.space.sample(rng, 9):
        try:
            candidate = task.candidate(config)
        except InstantiationError:
            refused += 1
            continue
        got = run(tvm.ir.load_json(candidate["module"]), arrays, want.shape)
        np.testing.assert_allclose(got, want, atol=1e-5, err_msg=str(config))
        built += 1
        for name, value in config.items():
            seen[name].add(json.dumps(value))
    assert built >= 4 and (refused > 0) == (case == "matmul")
    assert all(len(values) > 1 for values in seen.values())


TINY = {
    "matmul": ((2, 3, 3), ((2, 3), (3, 3))),
    "batch_matmul": ((2, 4, 8, 3), ((2, 4, 3), (2, 3, 8))),
    "conv2d": ((2, 4, 2, 3), ((2, 4, 4), (2, 2, 3, 3))),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_every_configuration_of_a_tiny_space(case: str) -> None:
    """The whole space, as the grid tuner walks it."""
    template, _, _, compute = CASES[case]
    args, shapes = TINY[case]
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    want = compute(*(array.astype("float64") for array in arrays))
    task = template.task(*args)
    tuner, right = make_tuner("grid", task, 0), 0
    for config in tuner.propose(len(task.space)):
        try:
            module = tvm.IRModule({"main": task.scheduled(config)})
        except InstantiationError:
            assert case == "matmul"  # the others refuse nothing
            continue
        np.testing.assert_allclose(run(module, arrays, want.shape), want, atol=1e-5, err_msg=str(config))
        right += 1
    assert right >= 12


def test_the_reference_is_the_unscheduled_function() -> None:
    task = tiled.task(6, 5, 4)
    what = task.describe()
    assert what["kind"] == "module" and json.loads(json.dumps(what)) == what
    reference = tvm.ir.load_json(what["reference"])
    tvm.ir.assert_structural_equal(
        reference["main"], te.create_prim_func(matmul(6, 5, 4)).with_attr("global_symbol", "main")
    )
    a, b = (np.random.default_rng(1).standard_normal(s).astype("float32") for s in ((6, 4), (4, 5)))
    np.testing.assert_allclose(run(reference, [a, b], (6, 5)), a @ b, atol=1e-5)


def test_a_task_says_what_it_is() -> None:
    task = direct.task(3, 9, 4, 3)
    assert (task.recipe, task.version) == ("conv2d_direct", 3)
    assert task.name == "conv2d_direct(3, 9, 4, 3)"
    assert task.key == TaskKey.of("template:conv2d_direct", [3, 9, 4, 3])
    assert task.flops >= 2 * 9 * 9 * 4 * 3 * 3 * 3
    assert task.default is None and math.isnan(task.prior(task.space.at(0)))
    assert task.space.kinds == {"tile_o": "sp", "tile_j": "sp", "pad": "ot", "taps": "an"}


def test_features_have_one_length_and_tell_configurations_apart() -> None:
    task = batched.task(3, 8, 16, 5)
    rows = [task.features(config) for config in map(task.space.at, range(len(task.space))) if task.space.legal(config)]
    assert len({row.shape for row in rows}) == 1 and rows[0].dtype == np.float32
    assert np.isfinite(rows).all()
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_features_of_a_refused_configuration_are_unknown() -> None:
    task = tiled.task(16, 8, 4)
    row = task.features({"tile_y": [1, 16], "tile_x": [1, 8], "order": [0, 1, 2, 3, 4], "ann": ["unroll", "vec"]})
    assert np.isnan(row[-len(LOOP_FEATURES) :]).all() and np.isfinite(row[: -len(LOOP_FEATURES)]).all()


def test_features_are_computed_once() -> None:
    calls = []

    @tvm_ext.template(matmul)
    def counted(sch, cfg):
        cfg.define_knob("unroll", [0, 1])
        calls.append(cfg["unroll"].val)

    task = counted.task(2, 2, 2)
    for _ in range(3):
        task.features({"unroll": 1})
    assert calls == [0, 1]


def test_build_takes_a_configuration_or_a_record() -> None:
    config = {"tile_y": [2, 4], "tile_x": [2, 4], "order": [0, 1, 2, 3, 4], "ann": ["none", "vec"]}
    built = tiled.build(config, 8, 8, 4)
    assert "T.vectorized(4)" in built.script()
    record = Record(TaskKey.of("template:tiled", [8, 8, 4]), "tiled", 1, config, costs=(1e-6,))
    tvm.ir.assert_structural_equal(tiled.build(record), built)
    tvm.ir.assert_structural_equal(tiled.build(Record.from_row(record.to_row()), 8, 8, 4), built)


WRONG = [
    ({"key": [4, 4, 4]}, "the record's task is not that of template 'tiled'"),
    ({"version": 2}, "the record's version is not"),
    ({"recipe": "other"}, "the record's template is not"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_build_refuses_records_of_something_else(changed, message: str) -> None:
    key = TaskKey.of("template:tiled", changed.get("key", [8, 8, 4]))
    record = Record(key, changed.get("recipe", "tiled"), changed.get("version", 1), {}, costs=(1.0,))
    with pytest.raises(OptionError, match=message):
        tiled.build(record, 8, 8, 4)


def test_build_refuses_values_that_are_no_choices() -> None:
    with pytest.raises(OptionError, match=r"knob 'tile_x': \[3, 3\] is not among its choices"):
        tiled.build({"tile_y": [8, 1], "tile_x": [3, 3], "order": [0, 1, 2, 3, 4], "ann": ["none", "vec"]}, 8, 8, 4)


def test_a_prim_func_is_taken_as_it_is() -> None:
    def double(n: int) -> tirx.PrimFunc:
        x = te.placeholder((n,), name="X")
        return te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2.0, name="Y")])

    @tvm_ext.template(double)
    def split(sch, cfg):
        (i,) = sch.get_loops(sch.get_sblock("Y"))
        cfg.define_split("tile", i)
        cfg["tile"].apply(sch, i)
        cfg.add_flop(42)

    x = np.arange(6, dtype="float32")
    task = split.task(6)
    assert task.flops == 42
    module = tvm.IRModule({"main": split.build({"tile": [2, 3]}, 6)})
    np.testing.assert_array_equal(run(module, [x], (6,)), 2 * x)


def refusing(sch, cfg):
    cfg.define_annotate("ann", ["x"], "unroll")
    cfg["ann"].apply(sch, sch.get_loops(sch.get_sblock("C"))[:1], max_unroll=2)


BROKEN = [
    (lambda n: None, lambda sch, cfg: None, (1,), "returned a NoneType"),
    (lambda n: [], lambda sch, cfg: None, (1,), "returned a list"),
    (matmul, lambda sch, cfg: None, (1, 2, {3}), "arguments of a task are JSON values"),
    (matmul, lambda sch, cfg: cfg["tile"], (1, 2, 3), "knob 'tile' is not defined; defined: none"),
    (matmul, refusing, (3, 3, 3), "the first choice of every knob is refused: a loop of 3 is not unrolled"),
]


@pytest.mark.parametrize(("compute", "schedule", "args", "message"), BROKEN)
def test_broken_templates_say_what_is_wrong(compute, schedule, args, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tvm_ext.template(compute)(schedule).task(*args)


def test_orders_and_annotations_need_as_many_loops() -> None:
    @tvm_ext.template(matmul)
    def short(sch, cfg):
        loops = sch.get_loops(sch.get_sblock("C"))
        cfg.define_knob("what", ["nothing", "order", "ann"])
        cfg.define_reorder("order", ["y", "x", "r"], "identity")
        cfg.define_annotate("ann", ["y", "x", "r"], "none")
        if (what := cfg["what"].val) != "nothing":
            cfg[what].apply(sch, loops[:2])

    for what in ("order", "ann"):
        config = {"what": what, "order": [0, 1, 2], "ann": ["none"] * 3}
        with pytest.raises(InstantiationError, match=r"of 3 loops (is|are) applied to 2"):
            short.build(config, 2, 2, 2)


def test_the_example_of_the_docstring_works() -> None:
    text = textwrap.dedent(template_module.__doc__.split("\n\n", 1)[1].rsplit("\n\n", 1)[0])
    names: dict = {}
    exec(text, names)
    a, b = (np.random.default_rng(2).standard_normal(s).astype("float32") for s in ((64, 32), (32, 48)))
    got = run(tvm.IRModule({"main": names["function"]}), [a, b], (64, 48))
    np.testing.assert_allclose(got, a @ b, atol=1e-4)
    assert len(names["task"].space) == 7 * 10  # divisors of 64 and of 48
