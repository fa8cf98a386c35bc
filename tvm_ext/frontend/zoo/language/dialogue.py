"""Text and tokens of a GGUF file: its own tokenizer and chat template."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....core.errors import InputError, ModelError, naming
from ....core.extras import extra
from .gguf_file import Fields, open_gguf

#: How text is split before pairs of bytes are joined: name in GGUF -> (digits alone, expression; "" for GPT-2's).
_SPLITS = {
    "gpt-2": (False, ""),
    "smollm": (True, ""),
    "llama-bpe": (
        False,
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
    ),
}
#: Types of tokens that text is never split into: control tokens, and those of a user.
_CONTROL, _OWN = 3, 4

Message = Mapping[str, str]
"""{"role": "system", "user" or "assistant", "content": text}"""


class Dialogue:
    """Messages to tokens, and tokens to text.

    Args:
        path: a GGUF file.

    Attributes:
        ends: tokens that end an answer.
        context: tokens that the model was made for; 0 if the file does not say.

    Raises:
        ModelError: no such file, or it has no tokenizer of pairs of bytes, or a field of these is damaged.
        ToolError: one of the packages of the extra "chat" is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        read = Fields(open_gguf(path), path)
        self._tokenizer = self._tokenizer_of(read)
        self.context = read.whole("context_length") if read.value("llama.context_length") is not None else 0
        self._template = read.value("tokenizer.chat_template", "")
        if not isinstance(self._template, str):
            raise read.error("field tokenizer.chat_template is no text")
        names, special = read.items("tokenizer.ggml.tokens", str), dict[str, int]()
        for name in ("bos", "eos", "eot"):
            number = read.value(f"tokenizer.ggml.{name}_token_id")
            if number is not None and not (isinstance(number, int) and 0 <= number < len(names)):
                raise read.error(f"field tokenizer.ggml.{name}_token_id: {number!r} of {len(names)} tokens")
            special |= {} if number is None else {name: number}
        self._known = {f"{name}_token": names[number] for name, number in special.items()}
        self.ends = tuple(number for name, number in special.items() if name != "bos")

    def _tokenizer_of(self, read: Fields) -> Any:
        tokenizers = extra("tokenizers", "chat", "text of a language model")
        kind, split = read.value("tokenizer.ggml.model"), read.value("tokenizer.ggml.pre", "gpt-2")
        if kind != "gpt2" or split not in tuple(_SPLITS):
            wrong = f"{self._path!r}: tokenizer {kind!r} that splits text as {split!r}"
            raise ModelError(wrong, fix=f"'gpt2' with one of {', '.join(_SPLITS)} works; generate() takes any tokens")
        names, types = read.items("tokenizer.ggml.tokens", str), read.items("tokenizer.ggml.token_type", int, [])
        merges = [tuple(pair.split(" ")) for pair in read.items("tokenizer.ggml.merges", str)]
        vocabulary = {name: i for i, name in enumerate(names)}
        wrong = f"{self._path!r}: tokenizer.ggml.merges are no pairs of tokenizer.ggml.tokens"
        with naming(ModelError, lambda: wrong, "the file is damaged"):
            tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
        digits, pattern = _SPLITS[split]
        steps = [tokenizers.pre_tokenizers.Digits(individual_digits=True)] if digits else []
        if pattern:
            steps.append(tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"))
        steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        control = [name for name, kind in zip(names, types, strict=False) if kind in (_CONTROL, _OWN)]
        tokenizer.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in control])
        return tokenizer

    def tokens(self, messages: Sequence[Message] | str) -> list[int]:
        """Tokens of a text, or of messages as the file's template writes them, with the beginning of an answer.

        Raises:
            ModelError: the file has no template, or it cannot be read, or refuses the messages.
            InputError: text that is no Unicode, such as a half of a pair of surrogates.
        """
        text = messages if isinstance(messages, str) else self._written(messages)
        with naming(InputError, lambda: f"text {text[:40]!r}", "give text of Unicode"):
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _written(self, messages: Sequence[Message]) -> str:
        sandbox = extra("jinja2.sandbox", "chat", "a chat template")
        if not self._template:
            raise ModelError(f"{self._path!r} has no chat template", fix="give it text instead of messages")
        environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        wrong = f"{self._path!r}: tokenizer.chat_template"
        with naming(ModelError, lambda: wrong, "the template of the file does not take these messages"):
            template = environment.from_string(self._template)
            return str(template.render(messages=list(messages), add_generation_prompt=True, **self._known))

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens say, without those of control."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text of tokens as they come; bytes of a character that is not whole yet wait."""
        waiting: list[int] = []
        for token in tokens:
            waiting.append(token)
            if not (text := self.text(waiting)).endswith("\N{REPLACEMENT CHARACTER}"):
                yield text
                waiting = []
        yield self.text(waiting)
