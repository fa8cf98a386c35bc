"""GGUF files of every type of weights, written by the package `gguf`, against its own decoding in float64."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.language import Decoder
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import ModelError, OptionError
from tvm_ext.frontend.zoo.language.gguf_file import open_gguf

from .test_llama import empty_caches, fed

package = pytest.importorskip("gguf")
SHAPES = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64), "ffn_gate": (96, 64),
          "ffn_up": (96, 64), "ffn_down": (64, 96)}  # fmt: skip


def written(
    path: Path, kinds: dict[str, str], tied: bool = True, architecture: str = "llama", **fields: str | float
) -> Decoder:
    """A model of one layer, and what its weights are.

    Args:
        kinds: part of a weight's name -> its type; the others are F32.
        fields: more metadata, by their names behind "llama.", with "__" for ".".
    """
    rng, decoded = np.random.default_rng(3), dict[str, np.ndarray]()
    writer = package.GGUFWriter(str(path), architecture)
    for name, value in (("block_count", 1), ("embedding_length", 64), ("context_length", 64),
                        ("feed_forward_length", 96), ("head_count", 4), ("head_count_kv", 2)):  # fmt: skip
        if f"attention__{name}" not in fields:
            getattr(writer, f"add_{name}")(value)
    for key, field in fields.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(field)]
        add(f"llama.{key.replace('__', '.')}", field)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (48, 64), "output_norm": (64,)}
    shapes |= {} if tied else {"output": (48, 64)}
    shapes |= {f"blk.0.{part}": shape for part, shape in SHAPES.items()} | {
        "blk.0.attn_norm": (64,),
        "blk.0.ffn_norm": (64,),
    }
    for name, shape in shapes.items():
        array = (rng.standard_normal(shape) / 8 + (len(shape) == 1)).astype(np.float32)
        if "ffn_up" in name:
            array[0, :32] = 0.25  # a block of one number
        kind = next((kind for part, kind in kinds.items() if part in name), "F32")
        of = package.GGMLQuantizationType[kind]
        stored: Any = package.quants.quantize(array, of)
        decoded[f"{name}.weight"] = package.quants.dequantize(stored, of).astype(np.float64)
        writer.add_tensor(f"{name}.weight", stored, raw_dtype=of)
    for finish in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, finish)()
    return Decoder(decoded, 1, 4, 2)


def logits_of(path: Path, count: int) -> tuple[list[int], np.ndarray]:
    """So many tokens, and the logits that the imported file gives behind each of them."""
    from tvm_ext.frontend.zoo import gguf

    tokens = [int(t) for t in np.random.default_rng(0).integers(0, 48, count)]
    model = gguf(path, every=True, exact=True)
    return tokens, onnxruntime_outputs(model, {**fed(tokens), **empty_caches(model)})["logits"][0]


@pytest.mark.parametrize(
    ("kinds", "tied"),
    [
        ({"attn": "Q4_1", "ffn": "Q4_1", "token": "Q8_0"}, True),
        ({"attn_q": "Q4_0", "attn_k": "Q8_0", "ffn_down": "F16", "token": "F16"}, True),
        ({"attn_": "Q4_0", "ffn_": "Q8_0", "output.weight": "Q4_1", "token": "Q4_0"}, False),
        ({"ffn_gate": "BF16"}, True),
    ],
)
def test_agrees_with_float64(kinds: dict[str, str], tied: bool, tmp_path: Path) -> None:
    norms = {"norm": "F32"}  # vectors have no blocks
    oracle = written(tmp_path / "m.gguf", {**norms, **kinds}, tied)
    tokens, got = logits_of(tmp_path / "m.gguf", 9)
    np.testing.assert_allclose(got, wanted := oracle.logits(tokens), rtol=0, atol=1e-4)
    assert np.abs(wanted).max() > 1


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    from tvm_ext.frontend.zoo import gguf

    (tmp_path / "text.gguf").write_text("no GGUF")
    written(tmp_path / "other.gguf", {}, architecture="mamba")
    written(tmp_path / "types.gguf", {"ffn_up": "Q5_0"})
    for name in ("none", "text", "other", "types"):
        with pytest.raises(ModelError):
            gguf(tmp_path / f"{name}.gguf")
    with pytest.raises(ModelError):
        written(tmp_path / "table.gguf", {"token": "Q4_1"})
        gguf(tmp_path / "table.gguf")
    for capacity in (0, -1, 2.5):
        with pytest.raises(OptionError):
            gguf(tmp_path / "types.gguf", capacity=capacity)


def test_a_model_that_is_made_later_is_that_of_its_arguments(tmp_path: Path) -> None:
    from tvm_ext.frontend.zoo import GGUFModel, gguf

    written(path := tmp_path / "m.gguf", {"ffn_up": "Q4_0"})
    assert GGUFModel(path, 32, cache="float16").make() == gguf(path, 32, cache="float16")
    models = [GGUFModel(path, **arguments) for arguments in ({}, {"every": True}, {"exact": True}, {"capacity": 32},
              {"cache": "float16"}, {"sequences": 2}, {"sequences": 2, "pages": 9})]  # fmt: skip
    known = [model.sha256() for model in models]
    assert len({*known}) == len(models) and [model.sha256() for model in models] == known
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the last weight
    path.write_bytes(data)
    assert not {*known} & {model.sha256() for model in models}
    for wrong in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ModelError):
            GGUFModel(wrong).sha256()


def test_lists_are_what_the_package_reads(tmp_path: Path) -> None:
    lists = {"tokens": ["", "a", "\u00e9\u4e16", "b" * 300], "scores": [0.5, -1.0], "kinds": [1, 2, 3], "flags": [True]}
    path = tmp_path / "m.gguf"
    writer = package.GGUFWriter(str(path), "llama")
    for name, values in lists.items():
        writer.add_array(f"list.{name}", values)
    writer.add_string("behind", "them")
    for finish in ("write_header_to_file", "write_kv_data_to_file", "close"):
        getattr(writer, finish)()
    own, theirs = open_gguf(path), package.GGUFReader(str(path))
    assert [*own.fields] == [*theirs.fields]
    assert all(own.fields[name].contents() == field.contents() for name, field in theirs.fields.items())
    assert own.fields["list.tokens"].contents() == lists["tokens"]
    whole, first = path.read_bytes(), path.read_bytes().index(b"list.tokens")
    for end in (first + 20, first + 40, len(whole) - 500):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelError):
            open_gguf(path)


@pytest.mark.parametrize(
    ("fields", "stretch"),
    [
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scaling__factor": 2.5}, 2.5),
        ({"rope__scale_linear": 4.0}, 4.0),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
        ({"rope__scaling__factor": 0.0}, 1.0),
    ],
)
def test_positions_are_divided(fields: dict[str, str | float], stretch: float, tmp_path: Path) -> None:
    oracle = written(tmp_path / "m.gguf", {}, **fields)
    tokens, got = logits_of(tmp_path / "m.gguf", 40)
    np.testing.assert_allclose(got, replace(oracle, stretch=stretch).logits(tokens), rtol=0, atol=1e-4)
    assert stretch == 1 or np.abs(got - oracle.logits(tokens)).max() > 1e-2


@pytest.mark.parametrize(
    "fields",
    [
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, {"rope__scaling__factor": -2.0},
        {"rope__scaling__type": 1}, {"rope__scaling__factor": float("nan")}, {"rope__freq_base": 0.0},
        {"attention__head_count": 0}, {"attention__head_count": 64}, {"attention__head_count": 3},
        {"attention__head_count": "4"}, {"attention__head_count": 4.5}, {"attention__head_count_kv": 3},
        {"attention__head_count_kv": 0}, {"attention__value_length": 8}, {"attention__scale": 0.5},
        {"rope__dimension_count": 8},
    ],
)  # fmt: skip
def test_metadata_of_what_is_not_computed_are_refused(fields: dict[str, str | float], tmp_path: Path) -> None:
    from tvm_ext.frontend.zoo import gguf

    written(tmp_path / "m.gguf", {}, **fields)
    with pytest.raises(ModelError, match=next(iter(fields)).rpartition("__")[2].partition("_")[0]):
        gguf(tmp_path / "m.gguf")
