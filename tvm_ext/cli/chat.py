"""`tvm-ext chat`: talk with a language model of a GGUF file, with its own tokenizer and chat template."""

import argparse
import sys
from typing import Any

from ..core.errors import InputError, OptionError, check_whole
from ..runtime.language.options import CALLS, MODEL, TEXT, Option
from .shared.common import Progress, print_json
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext chat SmolLM2-135M-Instruct.Q4_1.gguf
  tvm-ext chat SmolLM2-135M-Instruct.Q4_1.gguf --prompt "What is the capital of France?" --max-new 40
  tvm-ext chat SmolLM2-135M-Instruct.Q4_1.gguf --prompt "Name a river." --prompt "Name a lake." """
#: Tokens of a prompt that a call takes, and prompts that are answered at once.
_PIECE, _AT_ONCE = 256, 8

_Messages = list[dict[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb: those of the functions that it calls, as these declare them."""
    parser.add_argument("model", metavar="MODEL.gguf", help="a language model of the Llama family")
    parser.add_argument(
        "--prompt", metavar="TEXT", action="append", default=[],
        help="answer this, and no more; several are answered at once. Else lines of stdin",
    )  # fmt: skip
    parser.add_argument("--system", metavar="TEXT", help="what the model is told first")
    parser.add_argument("--draft", metavar="SMALL.gguf", help="of one prompt: a smaller model of the same tokens, "
                        "whose next ones --speculate checks instead of those that it looks up")  # fmt: skip
    for name, option in {**MODEL, **CALLS, **TEXT}.items():
        _add(parser, name, option)
    parser.set_defaults(sequences=_AT_ONCE)
    add_compile_arguments(parser)


def _add(parser: argparse.ArgumentParser, name: str, option: Option) -> None:
    """An option of a function; of one whose default is a tuple, each time a further part."""
    flag, said = f"--{name.replace('_', '-')}", option.help
    if option.default is False:
        parser.add_argument(flag, action="store_true", help=said)
    elif option.default == ():
        parser.add_argument(flag, type=option.kind, action="append", default=[], metavar=option.form, help=said)
    else:
        said += "" if option.default is None or name == "sequences" else f" (default: {option.default})"
        parser.add_argument(flag, type=option.kind, default=option.default, metavar=option.form or None, help=said,
                            choices=option.choices or None)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Compile, and answer, until nothing more is said or the talk is longer than the cache."""
    from .. import zoo
    from ..runtime.language.sampling import Sampling

    drawn = {name: getattr(args, name) for name in TEXT}
    Sampling(**drawn)
    for name in CALLS:
        check_whole(name, getattr(args, name))
    for name in ("sequences", "capacity"):
        check_whole(name, getattr(args, name), 1)
    options = {"state": "auto", **compile_options(args)}
    messages: _Messages = [{"role": "system", "content": args.system}] if args.system else []
    several = len(args.prompt) > 1
    if args.piece and not several:
        raise OptionError(f"--piece {args.piece} of one prompt", fix="give several, each with --prompt")
    if args.draft and (several or not args.speculate):
        raise OptionError(f"--draft {args.draft} of several prompts, or of no --speculate", fix="--speculate 4")
    with Progress(f"compiling {args.model}"):
        dialogue = zoo.Dialogue(args.model)
        texts = [dialogue.tokens([*messages, _of_user(text)]) for text in args.prompt or [""]]
        capacity = min(args.capacity, dialogue.context or args.capacity)
        if (longest := max(map(len, texts))) > capacity:
            raise InputError(f"{longest} tokens to begin with, where {capacity} fit", fix="a larger --capacity")
        compiled = _compiled(args, options)
        drawn["draft"] = _draft(args, options) if args.draft else None
    drawn["stop"] = (*dialogue.ends, *args.stop)
    if several:
        del drawn["draft"]
        return _at_once(args, compiled, dialogue, messages, drawn)
    return _talk(args, compiled, dialogue, messages, {**drawn, "capacity": capacity})


def _compiled(args: argparse.Namespace, options: dict[str, Any]) -> Any:
    """The model, for one talk or for several at once."""
    from .. import compile as compile_model
    from .. import zoo

    count = min(args.sequences, len(args.prompt)) if len(args.prompt) > 1 else 0
    of_model = {**{name: getattr(args, name) for name in MODEL}, "sequences": count}
    model = zoo.GGUFModel(args.model, every=bool(args.speculate and not count), **of_model)
    rows = count * (1 + args.speculate)
    sizes = {"T": (1, _PIECE + rows), "R": (1, rows)} if count else {"S": (1, _PIECE + args.speculate)}
    checked = sorted({1, 1 + args.speculate})
    exact: dict[str, Any] = {"T": (1, count), "R": (1, count)} if count else {"S": checked}
    return compile_model(model, **{"dims": sizes, "specialize": exact, **options})


def _draft(args: argparse.Namespace, options: dict[str, Any]) -> Any:
    """Rows of the smaller model."""
    from .. import PromptCache, zoo
    from .. import compile as compile_model

    model = zoo.GGUFModel(args.draft, args.capacity, exact=args.exact, cache=args.cache)
    return PromptCache(compile_model(model, **{"dims": {"S": (1, _PIECE)}, "specialize": {"S": (1,)}, **options}))


def _at_once(
    args: argparse.Namespace, compiled: Any, dialogue: Any, messages: _Messages, drawn: dict[str, Any]
) -> int:  # fmt: skip
    """Answer all prompts, each a talk of its own, printed in the order of the prompts."""
    from .. import Scheduler

    talks = [[*messages, _of_user(text)] for text in args.prompt]
    with Scheduler(compiled, **{name: getattr(args, name) for name in CALLS}) as scheduler:
        requests = [scheduler.submit(dialogue.tokens(talk), **drawn) for talk in talks]
        for talk, request in zip(talks, requests, strict=True):
            if not args.json:
                print(f"> {talk[-1]['content']}")
            talk.append(_of_model(_printed(dialogue.pieces(request), args)))
    if args.json:
        print_json({"ok": True, "talks": talks})
    return 0


def _talk(
    args: argparse.Namespace, compiled: Any, dialogue: Any, messages: _Messages, drawn: dict[str, Any]
) -> int:  # fmt: skip
    """Answer one prompt, or lines of stdin; what was read of the talk before is not read again."""
    from .. import PromptCache, generate

    cache, capacity, told = PromptCache(compiled), drawn.pop("capacity"), len(messages)
    while (line := _line(args, messages)) is not None:
        tokens = dialogue.tokens([*messages, _of_user(line)])
        if len(tokens) > capacity and len(messages) > told:
            print(f"the talk ends: {len(tokens)} tokens, where {capacity} fit (--capacity)", file=sys.stderr)
            break
        answer = generate(compiled, tokens, speculate=args.speculate, prompt_cache=cache, **drawn)
        messages += [_of_user(line), _of_model(_printed(dialogue.pieces(answer), args))]
    if args.json:
        print_json({"ok": True, "messages": messages})
    return 0


def _of_user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _of_model(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _line(args: argparse.Namespace, messages: _Messages) -> str | None:
    """What is said next; None at the end."""
    if args.prompt:
        return None if any(m["role"] == "user" for m in messages) else str(args.prompt[0])
    try:
        return input("" if args.json else "> ")
    except EOFError:
        return None


def _printed(pieces: Any, args: argparse.Namespace) -> str:
    """Text that is printed as it comes."""
    said = []
    for piece in pieces:
        said.append(piece)
        if not args.json:
            print(piece, end="", flush=True)
    if not args.json:
        print()
    return "".join(said)
