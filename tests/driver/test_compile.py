"""The compile driver: sources, cache, other CPUs, threads, the report, export and load."""

import concurrent.futures
import gc
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tvm_ext.core.errors import ArtifactError, BuildError, ToolError
from tvm_ext.core.machine import Machine
from tvm_ext.driver import compile as driver
from tvm_ext.driver.cache import CacheWarning
from tvm_ext.frontend import zoo
from tvm_ext.frontend.reading.reader import Deferred
from tvm_ext.runtime.cpu import why_not_here

from ..onnx_graphs import model, node, random, saved, value
from ..runtime.processes import run_python


def small(nan: bool = False) -> onnx.ModelProto:
    weight = random(8, 3, 3, 3, scale=0.2)
    if nan:
        weight[2, 1, 1, 1] = np.nan
    nodes = [node("Conv", "x w b", "c"), node("Relu", "c", "y")]
    return model(nodes, [value("x", (1, 3, 8, 9))], [value("y", (1, 8, 6, 7))], {"w": weight, "b": random(8)})


X = random(1, 3, 8, 9)


@pytest.fixture(scope="module")
def resnet() -> tuple[onnx.ModelProto, Any]:
    proto = zoo.resnet18()
    return proto, tvm_ext.compile(proto, cache=False, threads=2)


def test_path_bytes_and_proto_are_one_model(tmp_path: Path) -> None:
    proto = small()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    results = [tvm_ext.compile(m, cache=False).run(X)["y"] for m in (proto, path, str(path), path.read_bytes())]
    assert all(np.array_equal(results[0], r) for r in results)


def test_a_cache_hit_gives_equal_bits_and_lowers_nothing(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tvm_ext.compile(small()).run(X)["y"]

    def lower(*_: Any) -> None:
        raise AssertionError("a cache hit needs no compiler")

    monkeypatch.setattr(driver, "lower_all", lower)
    assert np.array_equal(tvm_ext.compile(small()).run(X)["y"], first)
    with pytest.raises(BuildError, match="a cache hit needs no compiler"):
        tvm_ext.compile(small(), threads=1)  # another key


def test_a_cache_hit_imports_no_compiler(cache_folder: Path) -> None:
    code = """
import sys, numpy, tvm_ext
compiled = tvm_ext.compile(tvm_ext.zoo.mlp(hidden=(32,)), threads=1)
compiled.run({spec.name: numpy.zeros(spec.shape, 'f4') for spec in compiled.inputs})
print('tvm' in sys.modules)
"""
    assert [run_python(code) for _ in range(2)] == ["True", "False"]


class _Later(Deferred):
    name = "later"

    def __init__(self) -> None:
        self.builds = 0

    def sha256(self) -> str:
        return "a" * 64

    def make(self) -> onnx.ModelProto:
        self.builds += 1
        return small()


def test_a_cache_hit_makes_no_model_that_is_made_later(cache_folder: Path) -> None:
    later = _Later()
    results = [tvm_ext.compile(later).run(X)["y"] for _ in range(2)]
    assert later.builds == 1 and np.array_equal(*results)
    tvm_ext.compile(later, cache=False)
    assert later.builds == 2


def test_a_model_is_read_once(cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, reads = tmp_path / "m.onnx", list[Path]()
    onnx.save(small(), path)
    read = Path.read_bytes

    def counted(self: Path) -> bytes:
        reads.append(self)
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", counted)
    tvm_ext.compile(path)
    assert reads.count(path) == 1


def test_without_a_linker_the_program_stays_in_memory(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    compiled = tvm_ext.compile(small())
    assert tvm_ext.verify(compiled, model=small()).ok and not cache_folder.exists()
    with pytest.raises(ToolError, match="export needs a linker"):
        compiled.export(tmp_path / "a.so")


def test_a_linker_that_fails_is_a_warning(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.warns(UserWarning, match="compiled in memory, and every time"):
        compiled = tvm_ext.compile(small())
    assert tvm_ext.verify(compiled, model=small()).ok


def test_an_unwritable_cache_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="cannot be used"):
        compiled = tvm_ext.compile(small())
    assert tvm_ext.verify(compiled, model=small()).ok


def test_for_a_lesser_cpu() -> None:
    compiled = tvm_ext.compile(small(), cache=False, target="x86-64-v2")
    assert compiled.metadata.machine["isa"] == "sse4.2" and tvm_ext.verify(compiled, model=small()).ok


@pytest.mark.parametrize("target", ["aarch64-linux-gnu:cortex-a72", "skylake-avx512"])
def test_for_a_cpu_that_is_not_here(target: str) -> None:
    compiled = tvm_ext.compile(small(), target=target)
    if why_not_here(Machine.detect(target).as_dict()):
        with pytest.raises(ArtifactError, match="compiled for"):
            compiled.run(X)
    else:
        assert tvm_ext.verify(compiled, model=small()).ok


def test_threads_are_compiled_in_and_change_no_bit_of_a_convolution() -> None:
    compiled = {t: tvm_ext.compile(small(), cache=False, threads=t) for t in (1, 2, 3)}
    assert [c.threads for c in compiled.values()] == [1, 2, 3]
    assert not compiled[1].metadata.parallel
    for c in compiled.values():
        assert tvm_ext.verify(c, model=small()).ok


def test_nan_weights_are_reported_and_computed() -> None:
    compiled = tvm_ext.compile(small(nan=True), cache=False, accuracy="exact")
    assert any("NaN" in w and "'w'" in w for w in compiled.report["warnings"])
    y = compiled.run(X)["y"]
    assert np.isnan(y[:, 2]).all() and not np.isnan(np.delete(y, 2, axis=1)).any()


def test_export_and_load_give_equal_bits(cache_folder: Path, tmp_path: Path) -> None:
    for options in ({"cache": False}, {}):
        compiled = tvm_ext.compile(small(), **options)
        compiled.export(tmp_path / "a.so")
        assert np.array_equal(tvm_ext.load(tmp_path / "a.so").run(X)["y"], compiled.run(X)["y"])


def test_the_report_is_plain_and_complete(cache_folder: Path) -> None:
    first, again = tvm_ext.compile(small()), tvm_ext.compile(small())
    assert json.loads(json.dumps(first.report)) == first.report == again.report
    assert set(first.report) == {
        "kernels", "launches", "bytes_moved", "activation_bytes", "weight_bytes", "memory", "nodes", "passes", "timing",
        "warnings",
    }  # fmt: skip
    assert list(first.report["timing"]) == ["start", "import", "passes", "build", "link"]
    assert list(tvm_ext.compile(small(), cache=False).report["timing"])[-2:] == ["build", "load"]
    kernels = first.report["kernels"]
    assert first.report["launches"] == sum(k["calls"] for k in kernels) == sum(len(k["call_sites"]) for k in kernels)
    assert [k["recipe"] for k in kernels] == ["conv2d_nchwc", "layout_transform"]
    assert all(not k["reason"] and k["config"] is not None and k["layouts"] for k in kernels)
    assert set(kernels[0]["nodes"]) == {"conv_c", "relu_y"} and kernels[0]["estimated_us"] > 0


def test_threads_may_call_one_model() -> None:
    compiled = tvm_ext.compile(small(), cache=False, threads=2)
    inputs = [random(1, 3, 8, 9, seed=i) for i in range(8)]
    alone = [compiled.run(x)["y"] for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            together = list(pool.map(lambda x: compiled.run(x)["y"], inputs))
            assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_threads_may_call_several_models() -> None:
    models = [tvm_ext.compile(m, cache=False, threads=2) for m in (small(), zoo.mlp(hidden=(300, 300)))]
    feeds = [random(1, 3, 8, 9, seed=3), random(1, 784, seed=3)]
    alone = [next(iter(m.run(x).values())) for m, x in zip(models, feeds, strict=True)]

    def call(i: int) -> bool:
        return np.array_equal(next(iter(models[i % 2].run(feeds[i % 2]).values())), alone[i % 2])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(160)))


def test_several_threads_may_compile_at_once() -> None:
    models = [model([node(op, "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))]) for op in ("Tanh", "Softmax")]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        compiled = list(pool.map(lambda m: tvm_ext.compile(m, cache=False), models * 2))
    assert all(tvm_ext.verify(c, model=m).ok for c, m in zip(compiled, models * 2, strict=True))


def test_nan_lies_where_onnxruntime_has_it() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Add", "b x", "c"), node("Clip", "c l h", "y")]
    weight = random(6, 6)
    weight[1, 4] = np.nan
    bounds = {"l": np.float32(-0.5), "h": np.float32(2)}
    proto = model(nodes, [value("x", (3, 6))], [value("y", (3, 6))], {"w": weight, **bounds})
    x = random(3, 6)
    x[1, 2] = np.nan
    report = tvm_ext.verify(tvm_ext.compile(proto, cache=False), proto, {"x": x})
    assert report.ok and report.outputs[0].nan == 6 + 2, str(report)


def test_a_model_replaced_while_it_is_compiled_is_another_one(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, other = tmp_path / "m.onnx", small(nan=True).SerializeToString()
    onnx.save(small(), path)
    content_of = driver.content_of

    def replaced(source: Any) -> Any:
        content = content_of(source)
        path.write_bytes(other)
        return content

    monkeypatch.setattr(driver, "content_of", replaced)
    assert not np.isnan(tvm_ext.compile(path).run(X)["y"]).any(), "the old file was read"
    monkeypatch.undo()
    monkeypatch.setenv("TVM_EXT_CACHE", str(cache_folder))
    assert np.isnan(tvm_ext.compile(path).run(X)["y"]).any(), "and is not found as the new one"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_compiles(tmp_path: Path) -> None:
    """Whatever threads compiling started in the parent are not there in the child."""
    run_python("""
import os, sys, numpy, tvm_ext
model = tvm_ext.zoo.mlp(hidden=(32,))
x = numpy.ones((1, 784), 'f4')
def run(): return tvm_ext.compile(model, cache=False, threads=2).run(x)['output']
expected = run()
child = os.fork()
if child == 0: os._exit(0 if numpy.array_equal(run(), expected) else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")


@pytest.mark.long
def test_two_processes_compile_one_model_at_once(cache_folder: Path, tmp_path: Path) -> None:
    path = saved(small(), tmp_path / "m.onnx")
    code = """
import sys, numpy, tvm_ext
x = numpy.linspace(-1, 1, 216, dtype='f4').reshape(1, 3, 8, 9)
print(tvm_ext.compile(sys.argv[1], threads=2).run(x)['y'].tobytes().hex())
"""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outputs = [*pool.map(lambda _: run_python(code, path, PYTHONWARNINGS="error"), range(2))]
    assert outputs[0] == outputs[1] != ""
    kept = [path.suffix for path in cache_folder.iterdir()]
    assert kept.count(".so") == 1 and {*kept} <= {".so", ".json"}
    x = np.linspace(-1, 1, 216, dtype="f4").reshape(1, 3, 8, 9)
    assert tvm_ext.compile(path, threads=2).run(x)["y"].tobytes().hex() == outputs[0]


# ------------------------------------------------------------------------------------------------ ResNet-18
def test_resnet18_agrees_with_onnxruntime(resnet: Any) -> None:
    proto, compiled = resnet
    report = tvm_ext.verify(compiled, model=proto)
    assert report.ok and report.outputs[0].of_range <= 1e-5


def test_resnet18_is_23_launches_of_recipes(resnet: Any) -> None:
    report = resnet[1].report
    assert report["launches"] == 23
    assert {k["recipe"] for k in report["kernels"]} == {
        "conv2d_nchwc", "conv2d_winograd", "pool2d", "reduction", "dense"
    }  # fmt: skip


def test_every_node_of_resnet18_is_owned(resnet: Any) -> None:
    """By a kernel, or by the pass that made it vanish."""
    proto, compiled = resnet
    owned = {n for k in compiled.report["kernels"] for n in k["nodes"]}
    vanished = {part for p in compiled.report["passes"] for e in p["fired"] + p["skipped"] for part in e[0].split(", ")}
    assert {n.name for n in proto.graph.node} - owned <= vanished
    assert {n.name for n in proto.graph.node} - owned <= {"flatten", "flat"}


def test_a_program_that_cannot_be_linked_is_built_in_memory(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report has the passes of one build."""
    build_library = driver._build_library

    def fail(*args: Any) -> None:
        build_library(*args)
        raise ToolError("the linker failed")

    wanted = [step["name"] for step in tvm_ext.compile(small(), cache=False).report["passes"]]
    monkeypatch.setattr(driver, "_build_library", fail)
    with pytest.warns(CacheWarning, match="the linker failed"):
        compiled = tvm_ext.compile(small())
    assert [step["name"] for step in compiled.report["passes"]] == wanted


@pytest.fixture
def collector() -> Iterator[tuple[int, int, int]]:
    """Thresholds of Python's collector of cycles, other ones than those of the tests."""
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield (700, 11, 12)
    gc.set_threshold(*before)


def test_compiles_at_once_leave_the_collector_of_cycles_as_it_was(
    collector: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, within = threading.Barrier(2), list[tuple[int, ...]]()

    def compiled(*_: Any) -> Any:
        both.wait(60)
        within.append(gc.get_threshold())
        if both.wait(60):
            raise BuildError("no program")

    monkeypatch.setattr(driver, "_compiled", compiled)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        errors = [future.exception() for future in [pool.submit(driver.compile_model, small()) for _ in range(2)]]
    assert {*map(type, errors)} == {BuildError, type(None)}
    assert {young > 700 for young, *_ in within} == {True} and {(old, older) for _, old, older in within} == {(11, 12)}
    assert gc.get_threshold() == collector


def test_without_room_for_a_library_a_model_is_compiled_in_memory(tmp_path: Path) -> None:
    """LLVM ends the process where it cannot write an object file."""
    onnx.save(small(), tmp_path / "m.onnx")
    text = """
import resource, sys, warnings
import numpy as np, tvm_ext
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    compiled = tvm_ext.compile(sys.argv[1], threads=1, machine="zen4-avx2")
print(any("no room for a library" in str(warning.message) for warning in told))
print(tvm_ext.verify(compiled, sys.argv[1]).ok)
try:
    compiled.export(sys.argv[1] + ".so")
except tvm_ext.errors.ToolError as error:
    print(error.fix)
"""
    said = run_python(text, tmp_path / "m.onnx", TVM_EXT_CACHE=str(tmp_path / "cache"))
    assert said.split("\n") == ["True", "True", "set TMPDIR to a folder with room"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["m.onnx"]
