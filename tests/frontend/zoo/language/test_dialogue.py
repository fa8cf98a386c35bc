"""Text of a GGUF file's own tokenizer and template, and `tvm-ext chat` over it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_ext.cli.app import main
from tvm_ext.core.errors import InputError, ModelError, TvmExtError
from tvm_ext.frontend.zoo import Dialogue, GGUFModel, gguf
from tvm_ext.runtime.language.generation import PromptCache

package = pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}<e>{% endfor %}<s>"
#: Bytes as GPT-2 writes them: those that print stand for themselves.
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]


def written(path: Path, template: str = TEMPLATE, kind: str = "gpt2", split: str = "smollm", **fields: Any) -> Path:
    """A model of one layer with a tokenizer of bytes, a few pairs, and three tokens of control.

    Args:
        fields: other values of fields of the tokenizer, by their names.
    """
    rng, writer = np.random.default_rng(1), package.GGUFWriter(str(path), "llama")
    tokens = ["<s>", "<e>", "<pad>", *LETTERS, "he", "ll", "hell", "hello", "Ġhello"]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
    for name, value in (("block_count", 1), ("embedding_length", 32), ("context_length", 128),
                        ("feed_forward_length", 32), ("head_count", 2), ("head_count_kv", 1)):  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(split)
    known: dict[str, Any] = {"tokens": tokens, "token_type": [3, 3, 3, *[1] * (len(tokens) - 3)], "merges": merges,
                             "bos_token_id": 0, "eos_token_id": 1}  # fmt: skip
    for name, value in (known | fields).items():
        add = {list: writer.add_array, int: writer.add_uint32, str: writer.add_string}[type(value)]
        add(f"tokenizer.ggml.{name}", value)
    if template:
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
    for number, template in enumerate(("", "{% for %}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
                                        "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ range(10 ** 9) }}")):  # fmt: skip
        with pytest.raises(ModelError):
            Dialogue(written(tmp_path / f"t{number}.gguf", template)).tokens([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens", "hello"), ("tokens", [1, 2]), ("tokens", ["<s>", "<e>"]), ("token_type", ["a"]), ("merges", "h e"),
        ("merges", ["he"]), ("merges", ["h e l"]), ("merges", ["no pair"]), ("merges", [1]), ("bos_token_id", 10**6),
        ("eos_token_id", "1"), ("eot_token_id", 300),
    ],
)  # fmt: skip
def test_damaged_fields_are_named(field: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.ggml"):
        Dialogue(written(tmp_path / "m.gguf", **{field: value}))


def test_no_bytes_raise_what_is_not_of_this_library(tmp_path: Path) -> None:
    whole, path, rng = written(tmp_path / "m.gguf").read_bytes(), tmp_path / "x.gguf", np.random.default_rng(7)
    head = whole.index(b"blk.0")  # behind it are names and shapes of tensors, then the tensors
    refused = 0
    for trial in range(150):
        data = bytearray(whole)
        if trial % 3:
            for place in rng.integers(0, head + 1000 if trial % 2 else 1200, 1 + trial % 4):
                data[place] = rng.integers(256)
        else:
            del data[int(rng.integers(len(data))) :]
        path.write_bytes(data)
        for read in (lambda: gguf(path), lambda: Dialogue(path).tokens([{"role": "user", "content": "hello"}])):
            try:
                read()
            except TvmExtError:
                refused += 1
    assert refused > 100


def test_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Dialogue(written(tmp_path / "m.gguf")).tokens("\udc80")


@pytest.mark.parametrize(
    ("arguments", "template"),
    [
        (["--max-new", "-1"], TEMPLATE), (["--capacity", "0"], TEMPLATE), (["--temperature", "nan"], TEMPLATE),
        (["--top-k", "-1"], TEMPLATE), (["--seed", "-1"], TEMPLATE), ([], ""), ([], "{{ 1 + 'a' }}"),
        (["--prompt", "9" * 200], TEMPLATE), (["--prompt", "9", "--prompt", "9" * 200], TEMPLATE),
        (["--speculate", "-1"], TEMPLATE), (["--sequences", "0"], TEMPLATE), (["--cache", "float8"], TEMPLATE),
        (["--pages", "9"], TEMPLATE), (["--piece", "-1"], TEMPLATE), (["--piece", "4"], TEMPLATE),
        (["--stop", "a"], TEMPLATE), (["--draft", "small.gguf"], TEMPLATE),
        (["--draft", "small.gguf", "--speculate", "2", "--prompt", "9", "--prompt", "8"], TEMPLATE),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_the_compile(
    arguments: list[str], template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles: list[Any] = []
    monkeypatch.setattr("tvm_ext.compile", lambda *args, **options: compiles.append(args))
    assert main(["chat", str(written(tmp_path / "m.gguf", template)), *arguments]) == 2
    assert not compiles


def test_packages_are_missed_before_the_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiles: list[Any] = []
    monkeypatch.setattr("tvm_ext.compile", lambda *args, **options: compiles.append(args))
    path = str(written(tmp_path / "m.gguf"))
    for name in ("jinja2.sandbox", "tokenizers"):
        with monkeypatch.context() as within:
            within.setitem(sys.modules, name, None)
            assert main(["chat", path]) != 0
    assert not compiles


def test_a_talk_beyond_the_capacity_ends(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(written(tmp_path / "m.gguf"))
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n" * 20))
    assert main(["chat", path, "--max-new", "5", "--capacity", "64", "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)["messages"]
    assert 2 <= len(said) < 40 and [m["role"] for m in said] == ["user", "assistant"] * (len(said) // 2)
    assert "--capacity" in err


def test_chat(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(written(tmp_path / "m.gguf"))
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    assert main(["chat", path, "--prompt", "hello", "--max-new", "5", "--capacity", "64", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["messages"]
    assert [m["role"] for m in said] == ["user", "assistant"] and said[0]["content"] == "hello"
    assert main(["chat", path, "--prompt", "hello", "--max-new", "5", "--capacity", "64"]) == 0
    assert capsys.readouterr().out == said[1]["content"] + "\n"


def test_options_of_a_chat_reach_its_functions(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = str(written(tmp_path / "m.gguf")), dict[str, Any]()
    monkeypatch.setattr("tvm_ext.zoo.GGUFModel", lambda *a, **options: seen.update(options) or GGUFModel(*a, **options))
    monkeypatch.setattr("tvm_ext.compile", lambda model, **options: model.make())
    monkeypatch.setattr("tvm_ext.PromptCache", lambda compiled: compiled)
    monkeypatch.setattr("tvm_ext.generate", lambda *args, **options: seen.update(options) or iter([40]))
    options = ["--cache", "float16", "--exact", "--capacity", "64", "--max-new", "9", "--stop", "7", "--stop", "8",
               "--speculate", "2", "--draft", path]  # fmt: skip
    assert main(["chat", path, "--prompt", "hello", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"][1]["content"] == Dialogue(path).text([40])
    wanted = {"cache": "float16", "exact": True, "capacity": 64, "max_new": 9, "stop": (*Dialogue(path).ends, 7, 8)}
    assert {**wanted, "speculate": 2}.items() <= seen.items() and seen["draft"].graph.name == "m.gguf"


def test_prompts_are_answered_at_once_as_they_are_alone(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, texts = str(written(tmp_path / "m.gguf")), ("hello", "12 12 12", "12 12 12 hello")
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    options = ["--max-new", "6", "--capacity", "64", "--json"]
    alone = []
    for text in texts:
        assert main(["chat", path, "--prompt", text, "--speculate", "2", *options]) == 0
        alone.append(json.loads(capsys.readouterr().out)["messages"])
    prompts = [word for text in texts for word in ("--prompt", text)]
    assert main(["chat", path, *prompts, "--sequences", "2", *options]) == 0
    assert json.loads(capsys.readouterr().out)["talks"] == alone


def test_a_talk_reads_only_what_is_new(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = str(written(tmp_path / "m.gguf")), list[int]()
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n" * 3))
    step = PromptCache.step
    monkeypatch.setattr(PromptCache, "step", lambda self, new: read.append(len(new)) or step(self, new))
    assert main(["chat", path, "--max-new", "1", "--capacity", "128", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["messages"]
    whole = Dialogue(path).tokens(said[:-1])
    assert len(read) == 3 and len(whole) <= sum(read) <= len(whole) + 4  # the end of an answer may be other tokens
