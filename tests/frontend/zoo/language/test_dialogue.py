"""Text of a GGUF file's own tokenizer and template, and `tvm-ext chat` over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_ext.cli.app import main
from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.zoo import Dialogue

package = pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}<e>{% endfor %}<s>"
#: Bytes as GPT-2 writes them: those that print stand for themselves.
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]


def written(path: Path, template: str = TEMPLATE, kind: str = "gpt2", split: str = "smollm") -> Path:
    """A model of one layer with a tokenizer of bytes, a few pairs, and three tokens of control."""
    rng, writer = np.random.default_rng(1), package.GGUFWriter(str(path), "llama")
    tokens = ["<s>", "<e>", "<pad>", *LETTERS, "he", "ll", "hell", "hello", "Ġhello"]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
    for name, value in (("block_count", 1), ("embedding_length", 32), ("context_length", 128),
                        ("feed_forward_length", 32), ("head_count", 2), ("head_count_kv", 1)):  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(template)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens), 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{n}": (32,) for n in ("attn_norm", "ffn_norm")}
    parts = ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes |= {f"blk.0.{n}": (32, 32) for n in parts} | {f"blk.0.{n}": (16, 32) for n in ("attn_k", "attn_v")}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) / 4).astype(np.float32))
    for finish in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, finish)()
    return path


def test_text_goes_to_tokens_and_back(tmp_path: Path) -> None:
    dialogue = Dialogue(written(tmp_path / "m.gguf"))
    tokens = dialogue.tokens("hello hello 12 \N{EURO SIGN}")
    assert tokens[:2] == [3 + len(LETTERS) + 3, 3 + len(LETTERS) + 4]  # "hello", " hello"
    assert dialogue.text(tokens) == "hello hello 12 \N{EURO SIGN}"
    assert dialogue.ends == (1,)
    assert "".join(dialogue.pieces(tokens)) == "hello hello 12 \N{EURO SIGN}"
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in dialogue.pieces(tokens))


def test_messages_are_written_by_the_template(tmp_path: Path) -> None:
    dialogue = Dialogue(written(tmp_path / "m.gguf"))
    tokens = dialogue.tokens([{"role": "user", "content": "hello"}])
    assert (tokens[0], tokens[-1], tokens[-2]) == (0, 0, 1) and dialogue.text(tokens) == "user hello"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for number, wrong in enumerate(({"kind": "llama"}, {"split": "other"})):
        with pytest.raises(ModelError):
            Dialogue(written(tmp_path / f"{number}.gguf", **wrong))
    for number, template in enumerate(("", "{% for %}", "{{ ''.__class__.__mro__[1].__subclasses__() }}")):
        with pytest.raises(ModelError):
            Dialogue(written(tmp_path / f"t{number}.gguf", template)).tokens([{"role": "user", "content": "x"}])


def test_chat(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(written(tmp_path / "m.gguf"))
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    assert main(["chat", path, "--prompt", "hello", "--max-new", "5", "--capacity", "64", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["messages"]
    assert [m["role"] for m in said] == ["user", "assistant"] and said[0]["content"] == "hello"
    assert main(["chat", path, "--prompt", "hello", "--max-new", "5", "--capacity", "64"]) == 0
    assert capsys.readouterr().out == said[1]["content"] + "\n"
