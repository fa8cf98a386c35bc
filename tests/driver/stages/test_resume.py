"""resume: a compile that goes on from a stage file makes the same program; what is wrong is said with its line."""

import json
import shutil
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests import state_graphs
from tests.inspection import stage_models
from tvm_ext.core.errors import OptionError, StageError, UnsupportedError
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.driver.stages.catalog import STAGES
from tvm_ext.runtime.model import CompiledModel

RESUMABLE = {stage.name for stage in STAGES if stage.resumes}
OFFLOAD: dict[str, Any] = {"offload": "systolic", "offload_options": {"when": "always"}}


def name_of(path: Path) -> str:
    return path.stem.split("_", 1)[1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages of a tiny model in a folder."""
    folder = tmp_path_factory.mktemp("tiny")
    tvm_ext.inspect(stage_models.tiny()).dump(folder)
    return folder


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    return tmp_path


def edit(path: Path, old: str, new: str) -> int:
    """Replaces the first occurrence in a file, and tells its line."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


def outputs_of(compiled: CompiledModel) -> dict[str, np.ndarray]:
    return compiled.run(seeded_inputs(compiled.inputs))


def same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(
        (a[n].dtype, a[n].shape, a[n].tobytes()) == (b[n].dtype, b[n].shape, b[n].tobytes()) for n in a
    )


def check_stages(model: onnx.ModelProto, folder: Path, stages: Set[str] = RESUMABLE, **options: Any) -> None:
    direct = tvm_ext.compile(model, cache=False, **options)
    expected = outputs_of(direct)
    files = tvm_ext.inspect(model, to="" if "offload" in options else "scheduled", **options).dump(folder)
    wanted = RESUMABLE if "offload" in options else RESUMABLE - {"program"}
    assert {name_of(file) for file in files} >= wanted
    for file in (file for file in files if name_of(file) in wanted):
        assert json.loads(file.with_suffix(".json").read_text())["gaps"] == {}
        if name_of(file) in stages:
            resumed = tvm_ext.resume(file)
            assert same_bits(outputs_of(resumed), expected), file.name
            assert (resumed.inputs, resumed.outputs) == (direct.inputs, direct.outputs)
            assert resumed.report["nodes"] == direct.report["nodes"], file.name
            kernels = [{k: row[k] for k in ("name", "recipe", "nodes", "layouts")} for row in direct.report["kernels"]]
            assert [{k: row[k] for k in kernels[0]} for row in resumed.report["kernels"]] == kernels, file.name


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What the tiny model gives when it is compiled in one go."""
    return outputs_of(tvm_ext.compile(stage_models.tiny(), cache=False))


@pytest.mark.parametrize("file", ["02_relax.py", "03_grouped.py", "04_layout.py", "06_scheduled.py"])
def test_a_stage_that_was_not_edited_gives_the_same_bits(
    tiny: Path, expected: dict[str, np.ndarray], file: str
) -> None:
    assert same_bits(outputs_of(tvm_ext.resume(tiny / file)), expected)


@pytest.mark.long
def test_every_stage_of_a_tiny_model(tmp_path: Path) -> None:
    check_stages(stage_models.tiny(), tmp_path)


@pytest.mark.long
def test_stages_in_bf16_know_what_was_decided(tmp_path: Path) -> None:
    direct = tvm_ext.compile(stage_models.tiny(), precision="bf16", cache=False)
    tvm_ext.inspect(stage_models.tiny(), precision="bf16").dump(tmp_path)
    for file in ("02_relax.py", "03_grouped.py", "04_layout.py"):
        resumed = tvm_ext.resume(tmp_path / file)
        assert same_bits(outputs_of(resumed), outputs_of(direct))
        assert resumed.report["precision"] == direct.report["precision"]


def test_every_stage_with_a_back_end(tmp_path: Path) -> None:
    check_stages(stage_models.tiny(), tmp_path, **OFFLOAD)


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "stages"),
    [("convolutions", {"scheduled"}), ("depthwise", {"layout"}), ("encoder", {"scheduled"}), ("recurrent", {"grouped"}),
     ("quantized", {"relax"})],
)  # fmt: skip
def test_stages_of(make: str, stages: set[str], tmp_path: Path) -> None:
    assert stages < RESUMABLE
    check_stages(getattr(stage_models, make)(), tmp_path, stages)


def test_an_exported_model_that_was_resumed_loads(copy: Path, tmp_path: Path) -> None:
    resumed = tvm_ext.resume(copy / "04_layout.py")
    resumed.export(tmp_path / "model.so")
    assert same_bits(outputs_of(tvm_ext.load(tmp_path / "model.so")), outputs_of(resumed))
    assert "warnings" not in resumed.report or resumed.report["warnings"] == []


# ------------------------------------------------------------------------------------------------ edits
def test_an_edited_operator_is_what_runs(copy: Path) -> None:
    expected = outputs_of(tvm_ext.resume(copy / "02_relax.py"))
    edit(copy / "02_relax.py", "R.nn.relu(", "R.negative(")
    resumed = tvm_ext.resume(copy / "02_relax.py")
    x = seeded_inputs(resumed.inputs)["x"].astype(np.float64)
    archive = np.load(copy / "tensors.npz")
    w = next(archive[n] for n in archive.files if archive[n].shape == (6, 10))
    b = next(archive[n] for n in archive.files if archive[n].shape == (10,))
    wanted = np.cumsum(-(x @ w + b) * np.float32(0.1), axis=1)
    np.testing.assert_allclose(outputs_of(resumed)["y"], wanted, atol=1e-5)
    assert not same_bits(outputs_of(resumed), expected)
    assert resumed.report["warnings"] == ["made from 02_relax.py, which was changed"]


def test_an_edited_configuration_schedules_the_kernel(copy: Path, expected: dict[str, np.ndarray]) -> None:
    kernel = tvm_ext.resume(copy / "04_layout.py").report["kernels"][0]
    tiles = kernel["config"]["tile_p"]
    edit(copy / "04_layout.py", f"'tile_p': {tiles}", "'tile_p': 1")
    resumed = tvm_ext.resume(copy / "04_layout.py")
    assert resumed.report["kernels"][0]["config"]["tile_p"] == 1
    np.testing.assert_allclose(outputs_of(resumed)["y"], expected["y"], atol=1e-5)


def test_edited_tensors_are_read(copy: Path) -> None:
    archive = dict(np.load(copy / "tensors.npz"))
    np.savez(copy / "tensors.npz", **{name: np.zeros_like(array) for name, array in archive.items()})
    assert not outputs_of(tvm_ext.resume(copy / "03_grouped.py"))["y"].any()


def test_an_edited_program_of_a_region(tmp_path: Path) -> None:
    model = stage_models.tiny()
    tvm_ext.inspect(model, **OFFLOAD).dump(tmp_path)
    text = tmp_path / "09_program.txt"
    before = outputs_of(tvm_ext.resume(text))
    line = edit(text, "GEMM ", "GEM ")
    with pytest.raises(StageError, match=rf"09_program\.txt:{line}: region .*no instruction 'GEM'"):
        tvm_ext.resume(text)
    edit(text, "GEM ", "GEMM ")
    relu = next(row for row in text.read_text().splitlines() if "op=relu" in row)
    edit(text, f"{relu}\n", "")
    resumed = tvm_ext.resume(text)
    assert resumed.offload_programs() and not same_bits(outputs_of(resumed), before)
    edit(text, "==== region ", "==== region other_")
    with pytest.raises(StageError, match=r"09_program\.txt:1: there is no region 'other_"):
        tvm_ext.resume(text)


# ------------------------------------------------------------------------------------------------ damage
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("02_relax.py", "R.nn.relu(", "R.nn.relu((", "was never closed"),
        ("02_relax.py", "R.nn.relu(", "R.nn.rellu(", "no attribute 'rellu'"),
        ("02_relax.py", "R.nn.relu(", "R.nn.relu(no_such_", "Undefined variable: no_such_"),
        ("03_grouped.py", "(3, 6), dtype", "(3, 7), dtype", "does not fit together"),
        ("04_layout.py", '"tvm_ext.recipe": "dense"', '"tvm_ext.recipe": "dens"', "there is no recipe 'dens'"),
        ("04_layout.py", "'tile_p': ", "'tile_q': ", "is no configuration of 'dense'"),
        ("04_layout.py", "'tile_p': ", "'tile_p': 10", "tile_p=10"),
        ("04_layout.py", '"tvm_ext.recipe": "dense"', '"tvm_ext.recipe": "softmax"', "does not take"),
        ("06_scheduled.py", "T.vectorized(", "T.vektorized(", "no attribute 'vektorized'"),
        ("06_scheduled.py", "constants(__file__)", "constants('nowhere.py')", "there is no 'nowhere.json'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(copy: Path, file: str, old: str, new: str, message: str) -> None:
    line = edit(copy / file, old, new)
    with pytest.raises(StageError) as caught:
        tvm_ext.resume(copy / file)
    said = caught.value.message
    assert message in said and said.startswith(f"{copy / file}:") and caught.value.fix
    assert message != "there is no recipe 'dens'" or "did you mean 'dense'" in caught.value.fix
    at = int(said.removeprefix(f"{copy / file}:").split(":")[0])
    assert abs(at - line) <= 1 or "fit together" in said, said


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_a_missing_side_file_is_named(copy: Path, suffix: str) -> None:
    gone = copy / ("tensors.npz" if suffix == "npz" else "03_grouped.json")
    gone.unlink()
    with pytest.raises(StageError, match=r"(is|are) missing") as caught:
        tvm_ext.resume(copy / "03_grouped.py")
    assert gone.name in caught.value.message and "one folder" in caught.value.fix


def test_damaged_side_files(copy: Path) -> None:
    (copy / "03_grouped.json").write_text("{\n!}")
    with pytest.raises(StageError, match=r"03_grouped\.json:2: no JSON"):
        tvm_ext.resume(copy / "03_grouped.py")
    (copy / "tensors.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(StageError, match=r"04_layout\.py:\d+: .*tensors\.npz' is damaged"):
        tvm_ext.resume(copy / "04_layout.py")


def test_tensors_are_never_read_by_pickle(copy: Path) -> None:
    archive = dict(np.load(copy / "tensors.npz"))
    objects = {name: np.array([{"a": 1}], dtype=object) for name in archive}
    np.savez(copy / "tensors.npz", **objects)  # type: ignore[arg-type]
    with pytest.raises(StageError, match=r"tensor '.*' of tensors\.npz: Object arrays cannot be loaded"):
        tvm_ext.resume(copy / "03_grouped.py")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["versions"].update(tvm="0.1"), "written by other versions: tvm 0.1"),
        (lambda m: m["machine"]["features"].append("amx-fp64"), "needs amx-fp64"),
        (lambda m: m.update(format=9), "no manifest of format 2"),
        (lambda m: m.pop("context"), "context: None: an object is needed"),
        (lambda m: m["options"].update(threads="many"), "threads='many'"),
        (lambda m: m["context"].pop("kernels"), "damaged: KeyError"),
    ],
)
def test_a_manifest_that_does_not_fit(copy: Path, change: Callable[[Any], Any], message: str) -> None:
    path = copy / "03_grouped.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(StageError, match=r"03_grouped\.json") as caught:
        tvm_ext.resume(copy / "03_grouped.py")
    assert message in caught.value.message and caught.value.fix


def test_stages_that_only_show(copy: Path) -> None:
    with pytest.raises(StageError, match="go on from 'layout' or 'scheduled'"):
        tvm_ext.resume(copy / "05_tir.py")
    with pytest.raises(StageError, match=r"08_asm\.json"):
        tvm_ext.resume(copy / "08_asm.s")
    with pytest.raises(StageError, match="is a folder"):
        tvm_ext.resume(copy)
    with pytest.raises(StageError, match="there is no file"):
        tvm_ext.resume(copy / "nothing.py")


@pytest.mark.long
def test_fusion_by_a_function_goes_on_from_grouped(tmp_path: Path) -> None:
    def none(candidate: Any) -> bool:
        return False

    tvm_ext.inspect(stage_models.tiny(), fusion=none).dump(tmp_path)
    with pytest.raises(StageError, match="fusion is a function"):
        tvm_ext.resume(tmp_path / "02_relax.py")
    expected = tvm_ext.compile(stage_models.tiny(), fusion=none, cache=False)
    assert same_bits(outputs_of(tvm_ext.resume(tmp_path / "03_grouped.py")), outputs_of(expected))


def test_a_symbolic_batch_and_unknown_stages_are_refused() -> None:
    free = stage_models.tiny()
    free.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UnsupportedError, match="one program a size") as caught:
        tvm_ext.inspect(free, shapes={"x": ("N", 6)})
    assert "specialize={'N': (16,)}" in caught.value.fix
    with pytest.raises(OptionError, match="fixes dimension 0 to 3"):
        tvm_ext.inspect(stage_models.tiny(), shapes={"x": ("N", 6)})
    with pytest.raises(OptionError, match="no stage 'group'") as unknown:
        tvm_ext.inspect(stage_models.tiny(), to="group")
    assert "did you mean 'grouped'" in unknown.value.fix


def test_states_are_those_of_the_compile(tmp_path: Path) -> None:
    proto = state_graphs.cached("Where")
    tvm_ext.inspect(proto, state="auto", threads=1).dump(tmp_path)
    compiled = tvm_ext.compile(proto, state="auto", threads=1, cache=False)
    for path in sorted(tmp_path.glob("*.py")):
        if name_of(path) in RESUMABLE:
            resumed = tvm_ext.resume(path)
            assert resumed.state == compiled.state == {"present": "past"}
            assert resumed.metadata.programs[0].updates == compiled.metadata.programs[0].updates == ((1, 2),)
