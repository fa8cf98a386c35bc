"""Tasks of a model: equal groups once, with all call sites; recipes that are worth it; work counted as stated."""

import pytest

from tests.onnx_graphs import model, node, random, residual_network, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend import zoo
from tvm_ext.tuning.extract import workloads_of

MACHINE = Machine.detect(threads=2)


def extract(proto, **options):
    return workloads_of(proto, CompileOptions(**options), MACHINE)


def test_equal_layers_are_one_task_with_all_their_nodes():
    weights = {"w": random(16, 16), "v": random(16, 16)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "c"), node("Relu", "c", "y")]
    (work,) = extract(model(nodes, [value("x", (8, 16))], [value("y", (8, 16))], weights))
    assert [set(site) for site in work.calls] == [{"matmul_a", "relu_b"}, {"matmul_c", "relu_y"}]
    (task,) = work.tasks
    assert task.recipe == "dense" == work.plan.recipe.name and task.default == work.plan.config
    assert task.space.legal(task.default) and task.space.at(task.space.index(task.default)) == task.default
    assert task.flops == 2 * 8 * 16 * 16 + 8 * 16
    assert task.features(task.default).shape == task.features(task.space.at(0)).shape


def test_resnet18_has_its_layers():
    tasks = extract(zoo.resnet18())
    convolutions = [w for w in tasks if w.key.op == "relax.nn.conv2d"]
    assert sum(len(w.calls) for w in convolutions) == 20
    total = sum(len(w.calls) * w.tasks[0].flops for w in convolutions)
    assert total == pytest.approx(3.63e9, rel=0.01)  # 1.81 G multiply-adds, as the paper counts them (table 1)
    assert {t.recipe for w in convolutions for t in w.tasks} == {"conv2d_nchwc", "conv2d_winograd"}
    keys = [w.key for w in tasks]
    assert len(set(keys)) == len(keys)


def test_exact_leaves_transformed_sums_out():
    default, exact = (
        {t.recipe for w in extract(residual_network(), accuracy=a) for t in w.tasks} for a in ("default", "exact")
    )
    assert default - exact == {"conv2d_winograd"}


def test_a_symbolic_batch_gives_the_tasks_of_each_size():
    nodes = [node("MatMul", "x w", "y")]
    proto = model(nodes, [value("x", ("N", 16))], [value("y", ("N", 8))], {"w": random(16, 8)})
    tasks = extract(proto, shapes={"x": ("N", 16)}, specialize={"N": (8, 32)})
    assert [w.key.args[0][1] for w in tasks] == [[8, 16], [32, 16]]
