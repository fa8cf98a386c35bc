"""Files of strangers that are data: descriptions of artifacts, programs, logs, arrays, weights: read, or refused."""

import hashlib
import io
import json
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.byoc.systolic import program_from_bytes
from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.program import _PREFIX, _START, _digest
from tvm_ext.core.errors import ArtifactError, InputError, ModelError, OptionError, ProgramError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook, machine_fields
from tvm_ext.frontend.zoo.state_dict import read_state_dict
from tvm_ext.runtime.artifact import _FOOTER, read_artifact, read_metadata
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.verification import arrays
from tvm_ext.verification.arrays import load_npy, load_npz

from . import bytes_mutators
from .json_mutators import mutated

_GIB = 1 << 30


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """A gibibyte more of address space than there is now: what takes more is a MemoryError, which no test expects."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def changed(data: bytes, rng: Random) -> bytes:
    """Bytes after one of the blind mutations."""
    return rng.choice(bytes_mutators.MUTATORS[:6])(data, rng)


def outcomes(
    count: int, make: Callable[[Random], Any], read: Callable[[Any], object], error: type[Exception]
) -> tuple[int, int]:
    """(accepted, refused) of so many mutants; any other error than `error` fails the test and names the mutant."""
    accepted = refused = 0
    for number in range(count):
        damaged = make(Random(number))
        try:
            read(damaged)
            accepted += 1
        except error as one:
            assert str(one).strip(), number
            refused += 1
        except Exception as other:
            raise AssertionError(f"mutant {number}: {type(other).__name__}: {other}") from other
    return accepted, refused


# ------------------------------------------------------------------------------------------------ artifacts
@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Winograd convolution, whose weights are stored in another form, and a matmul."""
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    proto = model(nodes, [value("x", [1, 32, 28, 28])], [value("y", [1, 32, 28, 28])], {"w": random(32, 32, 3, 3)})
    path = tmp_path_factory.mktemp("artifact") / "model.so"
    tvm_ext.compile(proto, cache=False, threads=1, records=None).export(path)
    return path


def resealed(data: bytes, text: bytes) -> bytes:
    """An artifact with another description, under a checksum that is right."""
    library, weights, start, _, _, version, magic, _ = _FOOTER.unpack(data[-_FOOTER.size :])
    body = data[:start] + text
    fields = (library, weights, start, len(text), len(body) + _FOOTER.size, version, magic)
    footer = _FOOTER.pack(*fields, bytes(32))[:-32]
    return body + footer + hashlib.sha256(body + footer).digest()


def test_descriptions_of_artifacts(artifact: Path, tmp_path: Path) -> None:
    data, path = artifact.read_bytes(), tmp_path / "mutant.so"
    assert read_metadata(artifact).compact
    start, size = _FOOTER.unpack(data[-_FOOTER.size :])[2:4]
    fields = json.loads(data[start : start + size])
    fields["report"] = {}  # nobody looks into it
    text = json.dumps(fields)

    def read(damaged: Any) -> None:
        path.write_bytes(resealed(data, str(damaged).encode(errors="surrogatepass")))
        read_artifact(path)

    read(text)
    accepted, refused = outcomes(400, lambda rng: mutated(text, rng), read, ArtifactError)
    assert refused > 150 and accepted > 20


def test_bytes_of_artifacts(artifact: Path, tmp_path: Path) -> None:
    data, path = artifact.read_bytes(), tmp_path / "mutant.so"
    tail = len(data) - 4000

    def make(rng: Random) -> bytes:
        damaged = data[:tail] + changed(data[tail:], rng)
        if rng.random() < 0.5 and len(damaged) > 32:
            damaged = damaged[:-32] + hashlib.sha256(damaged[:-32]).digest()
        return damaged

    def read(damaged: Any) -> None:
        path.write_bytes(damaged)
        read_artifact(path)

    assert outcomes(200, make, read, ArtifactError)[1] > 100

    def read_description(damaged: bytes) -> None:
        path.write_bytes(damaged)
        read_metadata(path)

    assert sum(outcomes(200, make, read_description, ArtifactError)) == 200


# ------------------------------------------------------------------------------------------------ programs of regions
@pytest.fixture(scope="module")
def program() -> bytes:
    """A program of the systolic array."""
    proto = model([node("MatMul", "x w", "h"), node("Relu", "h", "y")], [value("x", [3, 8])], [value("y", [3, 4])],
                  {"w": random(8, 4)})  # fmt: skip
    compiled = tvm_ext.compile(
        proto, cache=False, threads=1, offload="systolic",
        offload_options={"when": "always", "rows": 4, "cols": 4, "dtype": "float32"},
    )  # fmt: skip
    (text,) = compiled.offload_programs().values()
    return text


def test_programs_of_the_systolic_array(program: bytes) -> None:
    head, count, code = _PREFIX.unpack_from(program)[2:5]
    text = program[_START : _START + head].decode()

    def make(rng: Random) -> bytes:
        if rng.random() < 0.6:
            header = mutated(text, rng).encode(errors="surrogatepass")
            rest = program[_START + head :]
            prefix = _PREFIX.pack(*_PREFIX.unpack_from(program)[:2], len(header), count, code, len(rest) - code)
            body = header + rest
        else:
            whole = changed(program, rng)
            if len(whole) < _START:
                return whole
            prefix, body = whole[: _PREFIX.size], whole[_START:]
        return prefix + _digest(prefix, body) + body

    def read(damaged: Any) -> None:
        _ = program_from_bytes(damaged).order

    read(program)
    assert outcomes(500, make, read, ProgramError)[1] > 250


def test_texts_of_the_assembler(program: bytes) -> None:
    text = disassemble(program_from_bytes(program))
    assert assemble(text).to_bytes() == program

    def make(rng: Random) -> str:
        lines = text.splitlines()
        if rng.random() < 0.5:
            at = rng.randrange(len(lines))
            lines[at] = changed(lines[at].encode() or b" ", rng).decode(errors="replace")
        elif rng.random() < 0.5:
            rng.shuffle(lines)
        else:
            return changed(text.encode(), rng).decode(errors="replace")
        return "\n".join(lines)

    assert outcomes(300, make, assemble, ProgramError)[1] > 150


# ------------------------------------------------------------------------------------------------ logs
def test_tuning_logs(tmp_path: Path) -> None:
    log = next(iter(sorted(Path(tvm_ext.__file__).parent.glob("tuning_logs/*.json*"))))
    lines = [line for line in log.read_text().splitlines() if line.startswith(("{", "# {"))][:40]
    lines += [line for line in log.read_text().splitlines() if '"verdict"' in line][:5]
    path, machine = tmp_path / "mutant.json", Machine.detect()

    def make(rng: Random) -> bytes:
        line = rng.choice(lines)
        if rng.random() < 0.3:
            return changed(line.encode(), rng)
        mark = "# " if line.startswith("#") else ""
        return (mark + mutated(line.removeprefix("# "), rng)).encode(errors="surrogatepass")

    def read(damaged: Any) -> None:
        path.write_bytes(b"\n".join([damaged] * 2))
        book = RecordBook.read([path])
        for task in {record.task for record in book.records} | {verdict.task for verdict in book.verdicts}:
            book.best(task, machine, {record.recipe: record.version for record in book.records})
            assert isinstance(task.short, str)

    assert outcomes(300, make, read, OptionError) == (300, 0)  # what is no record is left out


def test_records_choose_among_configurations_and_do_no_more(tmp_path: Path) -> None:
    """Rows of a model's own task, with configurations that its recipe does not have."""
    proto = model([node("MatMul", "x w", "y")], [value("x", [8, 16])], [value("y", [8, 32])], {"w": random(16, 32)})
    log, x = tmp_path / "log.json", random(8, 16)
    (plain,) = tvm_ext.compile(proto, cache=False, threads=1, records=None).report["kernels"]
    machine = Machine.detect(None, 1)
    (work,) = workloads_of(proto, CompileOptions(threads=1), machine)
    good = Record(work.key, plain["recipe"], work.plan.recipe.version, plain["config"], (1e-6,),
                  machine=machine_fields(machine))  # fmt: skip
    row = json.loads(good.to_row())
    knobs = row["config"]["entity"]
    odd = (-1, 0, 1 << 62, 10**400, "x", None, [], {}, [1 << 40], True, 2.5)
    entities = [[[n, k, o if n == name else v] for n, k, v in knobs] for name, _, _ in knobs for o in odd]
    for entity in [*entities[::3], knobs[:-1], [*knobs, ["more", "ot", 1]], []]:
        row["config"]["entity"] = entity
        log.write_text(json.dumps(row) + "\n")
        try:
            compiled = tvm_ext.compile(proto, cache=False, threads=1, records=str(log))
        except OptionError as error:  # a number that float64 has not
            assert "no line is a record" in str(error)
            continue
        np.testing.assert_allclose(compiled.run({"x": x})["y"], x @ random(16, 32), rtol=1e-4, atol=1e-4)
        assert compiled.report["kernels"][0]["config"] == plain["config"]


# ------------------------------------------------------------------------------------------------ arrays and weights
def npy(array: np.ndarray) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def test_arrays(tmp_path: Path) -> None:
    path, data = tmp_path / "x.npy", npy(np.arange(12, dtype=np.float32).reshape(3, 4))

    def read(damaged: Any) -> None:
        path.write_bytes(damaged)
        load_npy(path)

    def make(rng: Random) -> bytes:
        return changed(data[: 60 + rng.randrange(100)] + data[100:], rng)

    assert outcomes(500, make, read, InputError)[1] > 250


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (-1, 4), (1 << 62, 4), (0, 1 << 62)])
def test_an_array_that_states_more_than_it_holds(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = npy(np.zeros(4, np.float32))
    start = data.index(b"(4,)")
    text = str(shape).encode()
    damaged = data[:start] + text + data[start + 4 + len(text) - 4 :]
    (tmp_path / "x.npy").write_bytes(damaged)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", damaged)
    for read in (load_npy, load_npz):
        with pytest.raises(InputError, match="not a readable"):
            read(tmp_path / ("x.npy" if read is load_npy else "x.npz"))


def test_an_archive_that_inflates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_FREE_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(4 << 20, np.uint8))
    with pytest.raises(InputError, match="of archive state"):
        load_npz(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=np.zeros(4 << 20, np.uint8))
    assert load_npz(tmp_path / "x.npz")["x"].nbytes == 4 << 20


def test_archives(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.arange(6), b=np.ones((2, 2), np.float32))
    path, data = tmp_path / "x.npz", stream.getvalue()

    def read(damaged: Any) -> None:
        path.write_bytes(damaged)
        load_npz(path)

    assert outcomes(400, lambda rng: changed(data, rng), read, InputError)[1] > 200


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("unpickled",))

    np.save(tmp_path / "x.npy", np.array([Trap()], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([Trap()], object))
    for read, name in ((load_npy, "x.npy"), (load_npz, "x.npz")):
        with pytest.raises(InputError):
            read(tmp_path / name)


def test_safetensors(tmp_path: Path) -> None:
    header = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "b": {"dtype": "BF16", "shape": [3],
              "data_offsets": [24, 30]}, "__metadata__": {"format": "pt"}}  # fmt: skip
    path, text, rest = tmp_path / "x.safetensors", json.dumps(header), bytes(30)

    def make(rng: Random) -> bytes:
        damaged = mutated(text, rng).encode(errors="surrogatepass")
        whole = struct.pack("<Q", len(damaged)) + damaged + rest
        return changed(whole, rng) if rng.random() < 0.3 else whole

    def read(damaged: Any) -> None:
        path.write_bytes(damaged)
        read_state_dict(path)

    assert outcomes(600, make, read, ModelError)[1] > 300


def test_onnx_bytes_never_need_the_folder(tmp_path: Path) -> None:
    """A model given as bytes has no folder, and reads no file."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    proto = model([node("Add", "x w", "y")], [value("x", [4])], [value("y", [4])])
    proto.graph.initializer.append(tensor)
    for source in (proto, proto.SerializeToString()):
        with pytest.raises(ModelError, match="has no folder"):
            tvm_ext.compile(source, cache=False)
