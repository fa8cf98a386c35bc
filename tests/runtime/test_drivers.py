"""Drivers: found by name, called with arrays over the caller's memory, and gone with their model."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.byoc.interpreter import make
from tests.onnx_graphs import model, node, random, value
from tvm_ext.byoc import register
from tvm_ext.core.errors import ArtifactError, DriverError
from tvm_ext.runtime import drivers
from tvm_ext.runtime.drivers import driver_named
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.offloading.report import OffloadReport

NAME = "driver_test"


def compiled(batch: Any = 4, **fields: Any) -> CompiledModel:
    register(make(NAME))
    nodes = [node("MatMul", "x w", "t", "fc"), node("Relu", "t", "u"), node("Tanh", "u", "y")]
    proto = model(nodes, [value("x", [batch, 6])], [value("y", [batch, 7])], {"w": random(6, 7)})
    return tvm_ext.compile(proto, offload=NAME, offload_options=fields, cache=False, shapes=_shapes(batch))


def _shapes(batch: Any) -> dict[str, Any]:
    return {"x": (batch, 6)} if isinstance(batch, str) else {}


def wanted(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.maximum(x.astype(np.float64) @ random(6, 7), 0))


def test_a_missing_driver_names_its_module() -> None:
    with pytest.raises(ArtifactError, match="driver of back end 'nobody' is missing") as caught:
        driver_named("nobody", "some.module")
    assert "`import some.module`" in caught.value.fix


def test_runners_go_with_their_model() -> None:
    gc.collect()
    before = set(drivers._runners)
    program = compiled()
    assert len(set(drivers._runners) - before) == 1
    program.run(random(4, 6))
    del program
    gc.collect()
    assert set(drivers._runners) <= before


def test_an_error_of_a_driver_names_back_end_and_region() -> None:
    program = compiled(fail="out of paper")
    for _ in range(2):  # and the model can be called again
        with pytest.raises(DriverError, match=f"'{NAME}', region {NAME}_region_0: ValueError: out of paper"):
            program.run(random(4, 6))


def test_a_program_that_its_driver_refuses(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    compiled().export(path)
    drivers.register_driver(NAME, lambda program: 1 / 0)  # type: ignore[arg-type,return-value]
    try:
        with pytest.raises(ArtifactError, match="does not take its program of region driver_test_region_0"):
            tvm_ext.load(path)
    finally:
        register(make(NAME))


def test_eight_threads_call_one_model() -> None:
    program, inputs = compiled(), [random(4, 6, seed=i) for i in range(8)]

    def call(x: np.ndarray) -> None:
        first = program.run(x)["y"]
        assert all(np.array_equal(program.run(x)["y"], first) for _ in range(25))
        np.testing.assert_allclose(first, wanted(x), atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(call, inputs)] == [None] * 8


def test_a_run_goes_on_while_a_region_of_another_is_under_way(tmp_path: Path) -> None:
    """The driver of the first run waits until the second one, region and kernels of the host, is done."""
    path, runs = tmp_path / "model.so", [random(4, 6, seed=i) for i in range(2)]
    compiled().export(path)
    plain, entered, is_done = driver_named(NAME), threading.Event(), threading.Event()

    def waiting(program: bytes) -> Any:
        runner = plain(program)

        def run(inputs: Any, outputs: Any) -> None:
            is_first = not entered.is_set()
            entered.set()
            if is_first and not is_done.wait(60):
                raise TimeoutError("the other run waits for this one")
            runner(inputs, outputs)

        return run

    drivers.register_driver(NAME, waiting)
    try:
        program = tvm_ext.load(path)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(program.run, runs[0])
            assert entered.wait(60)
            second = program.run(runs[1])
            is_done.set()
            results = [first.result()["y"], second["y"]]
    finally:
        is_done.set()
        register(make(NAME))
    for x, y in zip(runs, results, strict=True):
        np.testing.assert_allclose(y, wanted(x), atol=1e-6)


def test_a_symbolic_batch_shares_programs_that_are_equal() -> None:
    program = compiled("N")
    assert len(program.batches) == 3
    assert [offload.region for offload in program.metadata.offloads] == [f"{NAME}_region_0_n1"]
    for rows in (1, 3, 21):
        x = random(rows, 6)
        np.testing.assert_allclose(program.run(x)["y"], wanted(x), atol=1e-6)


def test_a_process_with_the_runtime_only(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    program = compiled()
    program.export(path)
    x = random(4, 6)
    np.save(tmp_path / "want.npy", program.run(x)["y"])
    code = textwrap.dedent(
        f"""
        import sys
        import numpy as np
        from tvm_ext.runtime.model import load
        try:
            load({str(path)!r})
        except Exception as error:
            assert "import tests.byoc.interpreter" in str(error), error
        from tests.byoc import interpreter
        from tvm_ext.byoc import register
        register(interpreter.make({NAME!r}))
        rng = np.random.default_rng([0, 4, 6])
        x = rng.standard_normal((4, 6)).astype(np.float32)
        got = load({str(path)!r}).run(x)["y"]
        assert np.array_equal(got, np.load({str(tmp_path / "want.npy")!r}))
        assert "tvm" not in sys.modules and "onnx" not in sys.modules
        """
    )
    environment = {**os.environ, "PATH": "", "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)


def test_the_report_of_a_model_without_offload() -> None:
    proto = model([node("Tanh", "x", "y")], [value("x", [3])], [value("y", [3])])
    with pytest.raises(tvm_ext.errors.OptionError, match="compiled without offload"):
        tvm_ext.compile(proto, cache=False).offload_report()


@pytest.mark.parametrize("offload", [{"ops": []}, {"backend": 1, "ops": [], "regions": []}, 5, {"ops": 1}, [1]])
def test_a_damaged_report_is_refused(offload: Any) -> None:
    with pytest.raises(tvm_ext.errors.ArtifactError, match="'offload'"):
        OffloadReport.of({"offload": offload}, "m")


def test_the_report_prints_and_is_a_page() -> None:
    report = compiled().offload_report()
    text = str(report)
    assert text.startswith(f"small: 2 of 3 nodes run on '{NAME}', in 1 regions")
    assert "no pattern for tanh" in text
    page = report._repr_html_()
    assert [row.nodes for row in report.kept] == [("tanh_y",)]
    assert page.count("<tr>") == (1 + 1) + (1 + 1) + (1 + 4) + (1 + 3)  # with heads: regions, kept, runs, operators
    assert report.as_dict()["regions"][0]["nodes"] == ["fc", "relu_u"]
