"""The artifact file: written whole, read with every check, refused with a reason."""

import dataclasses
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tvm_ext.core.errors import ArtifactError, ToolError
from tvm_ext.runtime import artifact as artifact_module
from tvm_ext.runtime import cpu, library
from tvm_ext.runtime.artifact import read_artifact, read_metadata, write_artifact
from tvm_ext.runtime.memory.arrays import is_aligned
from tvm_ext.runtime.model import CompiledModel, load
from tvm_ext.runtime.spec import FORMAT_VERSION, Metadata, TensorSpec

FOOTER = artifact_module._FOOTER.size


@pytest.fixture
def never_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to load code fails the test: damage must be found before."""

    def refuse(*_: object) -> None:
        pytest.fail("code of a damaged artifact was about to be loaded")

    monkeypatch.setattr("tvm_ext.runtime.model.load_library", refuse)


def refused(path: Path, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(path)


# ------------------------------------------------------------------------------------------------ good files
def test_weights_are_views_of_one_aligned_buffer(artifact: Path, bias_model: CompiledModel) -> None:
    read = read_artifact(artifact)
    (weight,) = read.weights
    assert is_aligned(weight) and weight.flags.writeable and weight.base is not None
    np.testing.assert_array_equal(weight, bias_model._arrays[0])
    assert np.frombuffer(read.library, np.uint8).ctypes.data % 64 == 0
    assert read.metadata == bias_model.metadata


def test_layout(artifact: Path) -> None:
    """The parts lie where the module's docstring says."""
    data = artifact.read_bytes()
    size, weights, metadata, metadata_bytes, whole = struct.unpack_from("<5Q", data, len(data) - FOOTER)
    assert whole == len(data) and weights % 64 == 0 and metadata == weights + 128
    assert data.startswith(b"\x7fELF") and library.elf_end(data[:64]) == size
    assert data[weights - 64 :].startswith(artifact_module.MAGIC)
    assert Metadata.from_json(data[metadata : metadata + metadata_bytes]) == read_metadata(artifact)
    assert metadata + metadata_bytes + FOOTER == whole
    bias = np.frombuffer(data, np.float32, 32, weights)
    np.testing.assert_array_equal(bias, np.linspace(-1, 1, 32, dtype=np.float32))


def test_the_file_is_a_plain_shared_library_too(artifact: Path) -> None:
    import tvm

    assert tvm.runtime.load_module(str(artifact)).kind == "relax.VMExecutable"


def test_files_get_the_permissions_of_any_file(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert artifact.stat().st_mode == (tmp_path / "plain").stat().st_mode


# ------------------------------------------------------------------------------------------------ damage
def cuts(path: Path) -> list[int]:
    """One length in each 64-byte region of the file, and both sides of each boundary between its parts."""
    data = path.read_bytes()
    size, weights, metadata, metadata_bytes, whole = struct.unpack_from("<5Q", data, len(data) - FOOTER)
    boundaries = (size, weights - 64, weights, metadata, metadata + metadata_bytes, whole - 44, whole - 32, whole)
    near = {b + d for b in boundaries for d in (-1, 0, 1)}
    inside = {start + (37 * i) % 64 for i, start in enumerate(range(0, whole, 64))}
    return sorted(n for n in near | inside if 0 <= n < whole)


def test_cut_off_anywhere(artifact: Path, tmp_path: Path, never_loads: None) -> None:
    data, path = artifact.read_bytes(), tmp_path / "cut.so"
    size = library.elf_end(data[:64])
    assert size is not None
    mark_end = -(-size // 64) * 64 + 64
    path.write_bytes(data)
    for length in reversed(cuts(artifact)):
        os.truncate(path, length)
        expected = (
            f"cut off: {length} of {len(data)} bytes" if length >= mark_end else "cut off|is empty|not an artifact"
        )
        refused(path, expected)


def test_every_flipped_byte_is_found(artifact: Path, tmp_path: Path, never_loads: None) -> None:
    """One byte in each 64-byte region, and every byte of mark and footer."""
    data, path = bytearray(artifact.read_bytes()), tmp_path / "flipped.so"
    size = library.elf_end(data[:64])
    assert size is not None
    spots = [start + (29 * i) % 64 for i, start in enumerate(range(0, len(data) - 64, 64))]
    for spot in [*spots, *range(size, size + 128), *range(len(data) - FOOTER, len(data))]:
        data[spot] ^= 1 << spot % 8
        path.write_bytes(data)
        refused(path, "altered|artifact format")
        data[spot] ^= 1 << spot % 8


def test_appended_and_removed_bytes(artifact: Path, tmp_path: Path, never_loads: None) -> None:
    data, path = artifact.read_bytes(), tmp_path / "model.so"
    path.write_bytes(data + b"\n")
    refused(path, "altered: its end")
    path.write_bytes(data[:1000] + data[1001:])
    refused(path, "an artifact of tvm-ext, but altered|no artifact|cut off")


def test_foreign_files(tmp_path: Path, never_loads: None) -> None:
    import tvm_ffi

    path = tmp_path / "file"
    for contents, message in [
        (b"", "the file is empty"),
        (b"\x7f", "cut off: it ends within its shared library"),
        (b"hello", "not an artifact of tvm-ext"),
        (b"x" * 5000, "not an artifact of tvm-ext"),
        (b"\x7fELF" + bytes(200), "cut off"),
        (bytes(5000), "not an artifact"),
    ]:
        path.write_bytes(contents)
        refused(path, message)
    refused(Path(tvm_ffi.libinfo.find_libtvm_ffi()), "a shared library, but no artifact of tvm-ext")
    refused(tmp_path, "Is a directory")
    refused(tmp_path / "nowhere.so", "No such file")
    model = tmp_path / "model.onnx"
    model.write_bytes(b"\x08\x08" + bytes(500))
    refused(model, r"not an artifact of tvm-ext\n.*tvm_ext\.compile")


def test_special_files(tmp_path: Path, never_loads: None) -> None:
    refused(Path("/dev/zero"), "not a regular file")
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    refused(tmp_path / "pipe", "not a regular file")


# ------------------------------------------------------------------------------------------------ other machines
def rewritten(source: Path, target: Path, **changes: object) -> Path:
    """The artifact with other metadata: whole and sound, but made for somewhere else."""
    read = read_artifact(source)
    elf = target.with_suffix(".elf")
    elf.write_bytes(read.library)
    write_artifact(target, elf, read.weights, dataclasses.replace(read.metadata, **changes))
    return target


def test_instructions_this_cpu_lacks(artifact: Path, tmp_path: Path, never_loads: None, monkeypatch) -> None:
    machine = {"isa": "avx512", "mcpu": "skylake-avx512", "triple": "", "features": ["avx2", "avx512f", "avx512vl"]}
    path = rewritten(artifact, tmp_path / "model.so", machine=machine)
    monkeypatch.setattr(cpu, "cpu_flags", lambda: frozenset({"avx2", "fma"}))
    refused(path, r"skylake-avx512 \(avx512\); it needs avx512f, avx512vl, which this \w+ CPU lacks\n.*target=")
    monkeypatch.setattr(cpu, "cpu_flags", lambda: frozenset({"avx2", "avx512f", "avx512vl"}))
    assert read_artifact(path).metadata.machine == machine


def test_instructions_no_cpu_of_this_architecture_has(artifact: Path, tmp_path: Path, never_loads: None) -> None:
    """Without a stand-in for the CPU: a feature of the other architecture is one that this host lacks."""
    other = "neon" if cpu.architecture() == "x86_64" else "avx512f"
    machine = {"isa": other, "mcpu": "some-cpu", "triple": "", "features": [other]}
    refused(rewritten(artifact, tmp_path / "model.so", machine=machine), f"it needs {other}")


def test_other_architecture(artifact: Path, tmp_path: Path, never_loads: None, monkeypatch) -> None:
    monkeypatch.setattr("tvm_ext.runtime.library.architecture", lambda: "riscv64")
    refused(artifact, f"compiled for {cpu.architecture()}, this machine is riscv64")


@pytest.mark.parametrize("package", ["tvm", "tvm_ffi"])
def test_other_versions(artifact: Path, tmp_path: Path, never_loads: None, package: str) -> None:
    versions = {**read_metadata(artifact).versions, package: "0.1.2"}
    path = rewritten(artifact, tmp_path / "model.so", versions=versions)
    refused(path, rf"made with {package} 0\.1\.2, here is .*\n.*compile the model again")


def test_other_version_of_tvm_ext_is_fine(artifact: Path, tmp_path: Path) -> None:
    versions = {**read_metadata(artifact).versions, "tvm_ext": "0.0.0"}
    assert load(rewritten(artifact, tmp_path / "model.so", versions=versions)).run(np.zeros((16, 32), np.float32))


def test_other_formats(artifact: Path, tmp_path: Path, never_loads: None, monkeypatch) -> None:
    monkeypatch.setattr(artifact_module, "FORMAT_VERSION", FORMAT_VERSION + 1)
    refused(artifact, f"artifact format {FORMAT_VERSION}; this installation reads {FORMAT_VERSION + 1}")


def test_metadata_that_fits_no_model(artifact: Path, tmp_path: Path, never_loads: None, monkeypatch) -> None:
    path = tmp_path / "model.so"
    monkeypatch.setattr(Metadata, "to_json", lambda self: '{"format": 1}')
    refused(rewritten(artifact, path), "metadata field 'inputs': None: a list is needed")
    monkeypatch.undo()
    monkeypatch.setattr("tvm_ext.runtime.model.load_library", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr(artifact_module, "_check_weights", lambda *_: None)
    wrong = (TensorSpec("bias", (100,), "float32"),)
    with pytest.raises(ArtifactError, match="weights its metadata lists"):
        read = read_artifact(artifact)
        elf = tmp_path / "library.elf"
        elf.write_bytes(read.library)
        monkeypatch.setattr(Metadata, "from_json", lambda *_: dataclasses.replace(read.metadata, weights=wrong))
        load(artifact)


# ------------------------------------------------------------------------------------------------ writing
def test_weights_must_be_those_of_the_metadata(artifact: Path, tmp_path: Path) -> None:
    read, path = read_artifact(artifact), tmp_path / "model.so"
    for weights in ([], [read.weights[0].astype(np.float64)], [read.weights[0][:5]], [*read.weights, *read.weights]):
        with pytest.raises(ArtifactError, match="weights do not fit the metadata"):
            write_artifact(path, artifact, weights, read.metadata)
    assert not path.exists()


def test_a_full_disk_leaves_the_old_file(artifact: Path, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"old")
    read = read_artifact(artifact)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tvm_ext.runtime.files.os.fsync", full)
    with pytest.raises(ToolError, match="cannot be written: No space left on device"):
        write_artifact(path, artifact, read.weights, read.metadata)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_loading_without_anonymous_memory(artifact: Path, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    x = np.ones((16, 32), np.float32)
    np.testing.assert_array_equal(load(artifact).run(x)["y"], x + np.linspace(-1, 1, 32, dtype=np.float32))


def test_every_library_has_a_name_of_its_own() -> None:
    """Descriptor numbers come again; no library may be taken for another."""
    names = set()
    for i in range(20):
        with library._as_file(memoryview(b"library %d" % i)) as name:
            names.add(name)
            assert Path(name).read_bytes() == b"library %d" % i
    assert len(names) == 20


def test_a_dropped_model_is_unloaded(artifact: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/memfd:tvm-ext")

    before = mapped()
    model = load(artifact)
    for _ in range(3):
        kept = model.run(np.ones((16, 32), np.float32))["y"]
    assert mapped() > before
    del model
    assert mapped() == before
    assert kept[0, 0] == 0
