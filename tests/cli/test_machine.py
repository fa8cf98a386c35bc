"""`tvm-ext machine`: this machine or a described one, as text and as JSON that `--machine` takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.verification.fakes import dense_model
from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import FOLDER
from tvm_ext.rates import Rates, measure

ZEN4 = Machine.described("zen4")


def test_this_machine(cli_json: Any) -> None:
    code, document = cli_json("machine")
    assert code == 0 and set(document) == {"name", "source", "machine"} and document["name"]
    assert Machine.of(document["machine"]) == Machine.detect()
    assert "typical" in document["source"]  # nothing was measured: tests set TVM_EXT_RATES


def test_it_is_measured_and_kept(cli_json: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Rates] = []

    def fake(vectors: Any, caches: Any, typical: Rates) -> Rates:
        calls.append(typical)
        return ZEN4.rates

    monkeypatch.setattr(measure, "measure", fake)
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    monkeypatch.setenv("TVM_EXT_RATES", "measured")
    documents = [cli_json("machine")[1] for _ in range(2)]
    assert len(calls) == 1 and documents[0] == documents[1] and "measured" in documents[0]["source"]
    assert cli_json("machine", "--measure") == (0, documents[0]) and len(calls) == 2


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_described_machine_is_printed_as_it_is_described(name: str, cli_json: Any) -> None:
    assert cli_json("machine", name) == (0, json.loads((FOLDER / f"{name}.json").read_text()))


def test_text(cli: Any) -> None:
    code, out, err = cli("machine", "xeon-amx")
    assert code == 0 and err == ""
    for part in ("avx512", "2 threads", "L1d 48 KiB", "L2 2048 KiB", "amx-tile", "at 3.6 GHz", "230 GFLOP/s a core",
                 "94 bytes", "338.4 GB/s", "2 us", "masks the model number"):  # fmt: skip
        assert part in out
    assert "tiles" in out and "tiles" not in cli("machine", "zen4")[1].replace("chiplets", "")


def test_a_printed_machine_can_be_compiled_for(cli: Any, cli_json: Any, model: str, tmp_path: Path) -> None:
    """The one that was printed, with its rates, and not this one."""
    file, artifact = tmp_path / "machine.json", tmp_path / "dense.so"
    for name in ((), ("zen3-avx2",)):
        document = cli_json("machine", *name)[1]
        document["machine"]["rates"]["clock"] = 1.25
        file.write_text(json.dumps(document))
        assert cli("compile", model, "--machine", str(file), "--no-cache", "-o", str(artifact))[0] == 0
        assert artifact.stat().st_size > 0
    compiled = tvm_ext.compile(model, machine=str(file), cache=False)
    x = np.random.default_rng(0).standard_normal((3, 7)).astype("float32")
    if "avx2" in Machine.detect().features:
        expected = x @ dense_model()[1]
        np.testing.assert_allclose(next(iter(compiled.run({"x": x}).values())), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("zen9",), "zen4"), (("no/such/file.json",), "no/such/file.json"), (("zen4", "--measure"), "measure"),
        (("zen4", "zen5"), "zen5"), (("--threads", "2"), "--threads"),
    ],
)  # fmt: skip
def test_usage_errors(arguments: tuple[str, ...], named: str, refused: Any) -> None:
    assert named in refused("machine", *arguments)


@pytest.mark.parametrize("text", ["", "{}", '{"machine": {"isa": "avx2"}}', "[" * 100_000])
def test_a_damaged_file_is_a_usage_error(text: str, refused: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "damaged.json"
    file.write_text(text)
    for command in (("machine", str(file)), ("compile", model, "--machine", str(file))):
        assert "fix:" in refused(*command)


def test_another_source_of_rates_is_a_usage_error(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_EXT_RATES", "guessed")
    assert "TVM_EXT_RATES" in refused("machine")
