"""Arguments that scripts have in common, each with one name, one meaning and one way to say it."""

import argparse
from collections.abc import Sequence
from typing import Any

#: Options of many scripts, which give their own default.
_COMMON = {
    "threads": "of every program",
    "rounds": "interleaved rounds",
    "seconds": "of each program in a round",
    "output": "folder of the result files",
}


def parser(
    doc: str | None,
    example: str = "",
    *,
    only: Sequence[str] = (),
    what: str = "parts",
    **options: Any,
) -> argparse.ArgumentParser:
    """A parser of a script's arguments.

    Args:
        doc: of the script.
        example: a command line behind `python benchmarks/`; "" for none.
        only: names that `--only` chooses of, by default all of them.
        what: these are.
        options: name -> (default, text), or the default where the text is one of those here. False
            makes a switch, a tuple several values of its first one's type.
    """
    epilog = f"example:\n  python benchmarks/{example}" if example else None
    built = argparse.ArgumentParser(
        description=doc, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if only:
        text = f"{what} (default: all), of {', '.join(only)}"
        names = {"choices": list(only), "default": list(only), "metavar": "NAME", "nargs": "+"}
        built.add_argument("--only", help=text, **names)
    for name, option in options.items():
        default, text = (option, _COMMON[name]) if name in _COMMON else option
        flag, several = f"--{name.replace('_', '-')}", isinstance(default, tuple)
        if default is False:
            built.add_argument(flag, action="store_true", help=text)
            continue
        kind = type(default[0] if several else default)
        text += f" (default: {default:g})" if isinstance(default, int | float) else ""
        more = {"nargs": "+"} if several else {}
        built.add_argument(flag, type=kind, default=default, help=text, **more)
    return built
