"""`tvm-ext chat`: talk with a language model of a GGUF file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..core.errors import InputError
from .shared.common import Progress, print_json
from .shared.options import add_compile_arguments, compile_options

SUMMARY = "talk with a language model of a GGUF file, with its own tokenizer and chat template"
EXAMPLE = """\
  tvm-ext chat SmolLM2-135M-Instruct.Q4_1.gguf
  tvm-ext chat SmolLM2-135M-Instruct.Q4_1.gguf --prompt "What is the capital of France?" --max-new 40"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL.gguf", help="a language model of the Llama family")
    parser.add_argument("--prompt", metavar="TEXT", help="answer this, and no more; else lines of stdin")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told first")
    parser.add_argument("--max-new", type=int, default=256, metavar="N", help="tokens of an answer (default: 256)")
    parser.add_argument("--capacity", type=int, default=2048, metavar="N", help="tokens of a talk (default: 2048)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest (default)")
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K",
        help="draw from so many; 0 from all (default); it counts with a temperature above 0 only",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of what is drawn")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, and answer, until nothing more is said or the talk is longer than the cache."""
    from .. import compile as compile_model
    from .. import zoo
    from ..runtime.memory.generation import check_draws

    options = {"dims": {"S": (1, 256)}, "specialize": {"S": (1,)}, "state": "auto", **compile_options(args)}
    check_draws(max_new=args.max_new, top_k=args.top_k, temperature=args.temperature, seed=args.seed)
    messages = [{"role": "system", "content": args.system}] if args.system else []
    with Progress(f"compiling {args.model}"):
        dialogue = zoo.Dialogue(args.model)
        first = dialogue.tokens([*messages, _of_user(args.prompt or "")])  # what is wrong is told before the compile
        model = zoo.gguf(args.model, capacity=args.capacity)
        capacity = model.graph.input[-1].type.tensor_type.shape.dim[2].dim_value
        if len(first) > capacity:
            raise InputError(f"{len(first)} tokens to begin with, where {capacity} fit", fix="a larger --capacity")
        compiled = compile_model(model, **options)
    talk = len(messages)
    while (line := _line(args, messages)) is not None:
        tokens = dialogue.tokens([*messages, _of_user(line)])
        if len(tokens) > capacity and len(messages) > talk:
            print(f"the talk ends: {len(tokens)} tokens, where {capacity} fit (--capacity)", file=sys.stderr)
            break
        answer = _answer(compiled, dialogue, tokens, args)
        messages += [_of_user(line), {"role": "assistant", "content": answer}]
    if args.json:
        print_json({"ok": True, "messages": messages})
    return 0


def _of_user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _line(args: argparse.Namespace, messages: list[dict[str, str]]) -> str | None:
    """What is said next; None at the end."""
    if args.prompt is not None:
        return None if any(m["role"] == "user" for m in messages) else str(args.prompt)
    try:
        return input("" if args.json else "> ")
    except EOFError:
        return None


def _answer(compiled: Any, dialogue: Any, prompt: list[int], args: argparse.Namespace) -> str:
    """The model's answer, printed as it comes."""
    from .. import generate

    tokens = generate(
        compiled, prompt, max_new=args.max_new, top_k=args.top_k, temperature=args.temperature, seed=args.seed,
        stop=dialogue.ends,
    )  # fmt: skip
    said = []
    for piece in dialogue.pieces(tokens):
        said.append(piece)
        if not args.json:
            print(piece, end="", flush=True)
    if not args.json:
        print()
    return "".join(said)
