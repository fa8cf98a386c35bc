"""inspect: stages as text, passes as diffs, a page; and that looking changes nothing of what is compiled."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.inspection import stage_models
from tests.onnx_graphs import model, node, random, value
from tests.state_graphs import growing
from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.instruments import Instruments
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.compile import compile_model
from tvm_ext.driver.machine_code import machine_code
from tvm_ext.driver.programs import lower
from tvm_ext.inspection.inspection import Inspection
from tvm_ext.inspection.snapshots import Snapshots
from tvm_ext.runtime.artifact import read_artifact


@pytest.fixture(scope="module")
def tiny() -> Inspection:
    return tvm_ext.inspect(stage_models.tiny())


def test_stages_in_order(tiny: Inspection) -> None:
    assert tiny.stages == ("onnx", "relax", "grouped", "layout", "tir", "scheduled", "llvm", "asm")
    assert "[gemm_h] h = Gemm (x, w, b)" in tiny.stage("onnx") and "float[6,10]" not in tiny.stage("onnx")
    assert "float[6, 10] w" in tiny.stage("onnx").partition("<")[0]
    assert "R.matmul(x, W." in tiny.stage("relax") and 'R.const(0.10000000149011612, "float32")' in tiny.stage("relax")
    assert "def fused_matmul_add_relu_multiply(" in tiny.stage("grouped")
    layout, tir, scheduled = (tiny.stage(name) for name in ("layout", "tir", "scheduled"))
    assert "class Groups:" in layout and "tvm_ext.recipe" in layout and "T.vectorized" not in layout
    assert "def cumsum(" in tir and "def cumsum(" not in layout and "def main(" not in tir
    assert "T.vectorized" in scheduled and "R.call_tir(cls.cumsum" in scheduled
    assert "; kernel cumsum" in tiny.stage("llvm") and "define" in tiny.stage("llvm")
    assert "# kernel cumsum" in tiny.stage("asm") and ".type" in tiny.stage("asm")


def test_stages_that_are_modules_are_python(tiny: Inspection) -> None:
    for name in ("relax", "grouped", "layout", "tir", "scheduled"):
        assert "Reading this file runs it" in tiny.stage(name)
        assert any(isinstance(statement, ast.ClassDef) for statement in ast.parse(tiny.stage(name)).body)


def test_it_stops_at_a_stage() -> None:
    early = tvm_ext.inspect(stage_models.tiny(), to="grouped")
    assert early.stages == ("onnx", "relax", "grouped") and early.passes[-1].name == "fuse-products"
    with pytest.raises(OptionError, match="the compile ended at 'grouped'"):
        early.stage("scheduled")
    with pytest.raises(OptionError, match="no part of 'small' is offloaded"):
        tvm_ext.inspect(stage_models.tiny()).stage("program")


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"dims": {"S": (1, 9), "N": (1, 2)}}, "(2, 9, 4)"),
        ({"dims": {"S": (1, 9), "N": (1, 2)}, "specialize": {"S": (2, 5)}}, "(2, 5, 4)"),
        ({"shapes": {"x": ("N", 6, 4)}, "specialize": {"N": (3,)}}, "(3, 6, 4)"),
    ],
)
def test_the_program_of_sizes_that_options_state(options: dict[str, Any], shape: str) -> None:
    graph = model([node("Relu", "x", "y")], [value("x", ("N", "S", 4))], [value("y", None)])
    assert f"def main(x: R.Tensor({shape}" in tvm_ext.inspect(graph, to="relax", **options).stage("relax")
    with pytest.raises(OptionError, match="no dimension of small is 'T'"):
        tvm_ext.inspect(graph, **{**options, "specialize": {"T": (1,)}})


def test_stages_of_a_program_whose_state_grows_can_be_gone_on_from(tmp_path: Path) -> None:
    options = {"dims": {"S": (1, 8), "P": (1, 40)}, "specialize": {"S": (1,)}, "state": "auto"}
    inspection = tvm_ext.inspect(growing(), to="grouped", **options)
    resumed = tvm_ext.resume(inspection.write("grouped", tmp_path / "grouped.py"))
    assert [spec.shape for spec in resumed.outputs] == [(1, 1, 32), (1, 2, 41, 16), (1, 2, 41, 16)]


def test_frozen_inputs_and_inlined_names_are_in_the_onnx_text() -> None:
    reshape = model(
        [node("Reshape", "x s", "y")], [value("x", (2, 6)), value("s", (2,), 7)], [value("y", (None, None))]
    )
    text = tvm_ext.inspect(reshape, to="onnx", freeze={"s": np.array([3, 4])}).stage("onnx")
    assert "s =  {3,4}" in text and "(float[2,6] x) =>" in text


# ------------------------------------------------------------------------------------------------ passes
def test_each_pass_is_a_diff_of_each_function(tiny: Inspection) -> None:
    names = [step.name for step in tiny.passes]
    assert names.count("simplify-algebra") == 3 and names[-1] == "lift-weights"
    grouping = tiny.passes[names.index("group-operations")]
    changes = {change.function: change.diff for change in grouping.changes}
    assert set(changes) == {"main", "fused_matmul_add_relu_multiply"}
    main = [line for line in changes["main"] if line.startswith(("+", "-"))]
    assert main[:2] == ["--- before/main", "+++ after/main"] and any(
        "R.nn.relu(" in line for line in main if line[0] == "-"
    )
    assert changes["fused_matmul_add_relu_multiply"][0] == "--- /dev/null"
    assert "<float32[6, 10] " in str(grouping) and "metadata" not in str(grouping)


def test_constants_and_variables_keep_their_names_between_passes(tiny: Inspection) -> None:
    for step in tiny.passes:
        if step.name in ("schedule-kernels", "choose-recipes"):
            assert step.fired and all(change.function != "main" for change in step.changes), step.name
    idle = [step for step in tiny.passes if not step.fired]
    assert idle and all(not worker.changes for worker in idle)


def test_only_some_passes(tiny: Inspection) -> None:
    (only,) = tiny.changes_of(["assign-layouts"])
    assert only == tiny.passes[only.number - 1]
    with pytest.raises(OptionError, match="no pass 'fold' ran") as caught:
        tiny.changes_of(["fold"])
    assert "fold-constants" in caught.value.fix


def test_json_and_texts(tiny: Inspection) -> None:
    plain = tiny.as_dict()
    assert plain["stages"][0] == "onnx" and plain["passes"][19]["name"] == "group-operations"
    assert "group-operations" in str(tiny) and "<table" in tiny._repr_html_()


def test_the_page_has_all_stages_and_all_diffs(tiny: Inspection) -> None:
    page = tiny.html()
    for part in ("Stage scheduled", "group-operations", '<span class="added">', "T.vectorized", "vmovups"):
        assert part in page
    assert "http://" not in page.replace("http://www.w3.org", "") and '<link rel="stylesheet"' not in page


# ------------------------------------------------------------------------------------------------ looking
def test_looking_changes_no_byte(tmp_path: Path) -> None:
    step = stage_models.tiny()
    plain = compile_model(step, CompileOptions(cache=False))
    snapshots = Snapshots()
    seen = compile_model(step, CompileOptions(cache=False), Instruments(watch=snapshots.watch))
    libraries = []
    for name, compiled in (("plain", plain), ("seen", seen)):
        compiled.export(tmp_path / name)
        libraries.append(bytes(read_artifact(tmp_path / name).library))
    assert libraries[0] == libraries[1] and len(snapshots.steps) > 20
    inspection = tvm_ext.inspect(step)
    inspection.dump(tmp_path / "stages")
    assert machine_code(inspection.lowered, "asm") == machine_code(
        lower(step, CompileOptions(), Machine.detect()), "asm"
    )


# ------------------------------------------------------------------------------------------------ writing
def test_one_stage_with_its_files(tiny: Inspection, tmp_path: Path) -> None:
    path = tiny.write("grouped", tmp_path / "g.py")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.json", "g.npz", "g.py"]
    assert tvm_ext.resume(path).outputs[0].name == "y"
    with pytest.raises(OptionError, match=r"let it end in \.py|it is a Python file"):
        tiny.write("grouped", tmp_path / "g.txt")
    with pytest.raises(ToolError, match="cannot be written"):
        tiny.write("grouped", tmp_path / "no" / "g.py")
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="the folder cannot be made"):
        tiny.dump(tmp_path / "file")


@pytest.mark.long
def test_names_that_tvmscript_uses_itself(tmp_path: Path) -> None:
    nodes = [node("Add", "T R", "I"), node("Mul", "I w", "W"), node("MatMul", "W v", "class")]
    weights = {"w": random(3, 3), "v": random(3, 3, seed=1)}
    proto = model(
        nodes, [value("T", (3, 3)), value("R", (3, 3))], [value("class", (3, 3)), value("I", (3, 3))], weights
    )
    files = tvm_ext.inspect(proto).dump(tmp_path)
    direct = tvm_ext.compile(proto, cache=False)
    inputs = {"T": random(3, 3, seed=2), "R": random(3, 3, seed=3)}
    for file in files[1:4]:
        resumed = tvm_ext.resume(file)
        assert [k["nodes"] for k in resumed.report["kernels"]] == [k["nodes"] for k in direct.report["kernels"]]
        outputs, expected = resumed.run(inputs), direct.run(inputs)
        assert all(np.array_equal(outputs[name], expected[name]) for name in ("class", "I"))
