"""Options of language models, declared once: what their functions take, and `tvm-ext chat` on its command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: What caches may hold.
CACHES = ("float32", "float16")


@dataclass(frozen=True)
class Option:
    """An argument of a function, and an option on the command line.

    Attributes:
        default: of both.
        help: what it says, in a line.
        form: of the text on a command line; "" of a switch, and of one of `choices`.
        kind: of a value, or of each where the default is a tuple.
        choices: texts that it may be; none if any may fit.
    """

    default: Any
    help: str
    form: str = "N"
    kind: type = int
    choices: tuple[str, ...] = ()


#: Of one text: arguments of `generate` and of a scheduler's `submit`.
TEXT: Mapping[str, Option] = {
    "max_new": Option(128, "tokens of an answer"),
    "top_k": Option(0, "draw from so many; 0 from all; it counts with a temperature above 0 only", "K"),
    "temperature": Option(0.0, "0 takes the likeliest", "T", float),
    "seed": Option(None, "of what is drawn", "SEED"),
    "stop": Option((), "a token that ends an answer, beside those of the file", "TOKEN"),
}
#: Of calls: arguments of `generate` or of `Scheduler`.
CALLS: Mapping[str, Option] = {
    "speculate": Option(0, "look up so many tokens ahead in the talk, and check them in one call", "K"),
    "piece": Option(0, "of several prompts: tokens of prompts that a step takes at most; 0 for all that it can"),
}
#: Of a model: arguments of `zoo.gguf`.
MODEL: Mapping[str, Option] = {
    "capacity": Option(2048, "tokens of a talk"),
    "exact": Option(False, "products of float32; else they may be of 8-bit numbers", ""),
    "cache": Option("float32", "what caches of keys and values hold; float16 is half as much to read", "", str, CACHES),
    "sequences": Option(0, "prompts that are answered at once, the others wait (default: 8)"),
    "pages": Option(0, "of 32 tokens, of the cache that several prompts share; 0 for as many as all need"),
}
