"""The search: with everything on, with all suspects of a kind off, and then halves, until none can be left out."""

import itertools
import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...core.errors import check_choice, check_whole, listener
from ...core.instruments import KINDS
from ...core.options import CompileOptions
from ...runtime.memory.arrays import NamedArrays
from ...runtime.values import named
from ..verify import check_tolerance
from .result import AGREES, ELSEWHERE, FOUND, Bisection, Culprit, Finding
from .suspects import Suspect, Suspects, suspects
from .trials import Bench, Event

#: What to try when a kind has no culprit.
_OTHERS = {
    "offload": "recipe, pass or record", "record": "recipe, pass or offload", "recipe": "pass or offload",
    "pass": "recipe, record or offload", "layer": "pass or offload",
}  # fmt: skip


def bisect(
    model: Any, by: str | None = None, inputs: NamedArrays | None = None, *, seed: int = 0,
    tolerance: float | None = None, on_event: Event | None = None, **options: Any
) -> Bisection:  # fmt: skip
    """Find what makes outputs disagree with onnxruntime's, by compiling with halves of it switched off.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        by: "pass", "recipe", "layer" (a group of operations, which goes the generic way when it is off), "record" or
            "offload"; None tries offload, record, recipe (and in which layers) and pass, in this order.
        inputs: name -> array; None draws them.
        seed: seed of the drawn inputs.
        tolerance: largest error of a floating-point output; see :func:`tvm_ext.verify`.
        on_event: is told what happens, as plain values: "start" and "trial".
        **options: compile options, as for :func:`tvm_ext.compile`.

    Returns:
        A result: `status` ("agrees", "found" or "elsewhere"), `culprits` (the smallest set that has to be off, with
        ONNX nodes, what passes did, recipes, configurations, records by file and line), `trials`; `str()` prints it.

    Raises:
        OptionError: no such kind, or a bad option.
        InputError: `inputs` do not fit the model.
        ModelError, UnsupportedError: the model cannot be imported, or onnxruntime cannot run it.
    """
    if by is not None:
        check_choice("by", by, KINDS)
    seed = check_whole("seed", seed)
    if tolerance is not None:
        check_tolerance(tolerance)
    inputs = None if inputs is None else named(inputs, "inputs")
    chosen = replace(CompileOptions.of(**options), cache=False)
    bench = Bench(model, chosen, inputs, seed, tolerance, listener(on_event))

    def again() -> list[str]:
        """The command line that compiles and compares the same."""
        path = os.fspath(model) if isinstance(model, str | os.PathLike) else bench.name
        numbers = ["--seed", str(seed)] * bool(seed) + ["--tolerance", repr(tolerance)] * (tolerance is not None)
        return ["tvm-ext", "verify", path, *replace(chosen, cache=True).arguments(), *numbers]

    if bench.everything_on().ok:
        return _result(bench, by, AGREES, [], again)
    findings: list[Finding] = []
    for kind in [by] if by else [kind for kind in KINDS if kind != "layer"]:
        kind_of = suspects(kind, bench.programs)
        finding = _search(bench, kind_of)
        findings.append(finding)
        if finding.culprits:
            if not by and kind == "recipe":
                findings += _narrowed(bench, finding)
            return _result(bench, by, FOUND, findings, again)
    return _result(bench, by, ELSEWHERE, findings, again)


def _not_possible(bench: Bench, kind: str) -> str:
    """Why no recipe, or no pass, can be to blame; "" if one may be.

    A pass that is off may keep a wrong recipe from being used, and a recipe that is off a wrong pass from doing
    anything. With every group left to the generic way all passes do what they did, and no recipe makes a kernel: an
    error that stays is none of the recipes', one that goes none of the passes'.
    """
    layers = suspects("layer", bench.programs).items
    if kind not in ("recipe", "pass") or not layers:
        return ""
    right = bench.helps("layer", layers, len(layers))
    if right and kind == "pass":
        return "all passes are right: the outputs agree with every pass on, and no kernel of a recipe"
    if right or kind == "pass" or math.isnan(bench.error_of("layer", layers)):  # NaN: such a program cannot be made
        return ""
    return "the error stays with every pass on, and no kernel of a recipe"


def _search(bench: Bench, suspected: Suspects) -> Finding:
    """The smallest set of suspects of a kind that have to be off."""
    every, count = suspected.items, len(suspected.items) + len(suspected.idle)

    def helps(off: tuple[Suspect, ...]) -> bool:
        return bench.helps(suspected.kind, off, count)

    reason = "there is none in this compile" if not count else _not_possible(bench, suspected.kind)
    if not reason and not (every and helps(every)):
        every += suspected.idle  # with some off, others may take their place
        if not suspected.idle or not helps(every):
            reason = "the error stays with all of them off"
    if reason:
        return Finding(suspected.kind, (), (), count, suspected.kept, reason)
    smallest = minimal_set(every, helps)
    rest = tuple(suspect for suspect in every if suspect not in smallest)
    also = minimal_set(rest, helps) if rest and helps(rest) else ()
    return Finding(suspected.kind, _culprits(smallest), _culprits(also), count, suspected.kept)


def _narrowed(bench: Bench, finding: Finding) -> list[Finding]:
    """A recipe may be wrong in some layers only, as where one weight is packed wrongly."""
    names = {culprit.name for culprit in finding.culprits}
    layers = suspects("layer", bench.programs)
    mine = tuple(suspect for suspect in layers.items if suspect.culprit.recipe in names)
    if len(mine) < 2:
        return []
    narrowed = _search(bench, replace(layers, items=mine, idle=(), kept=()))
    return [narrowed] if narrowed.culprits and len(narrowed.culprits) < len(mine) else []


def _culprits(off: tuple[Suspect, ...]) -> tuple[Culprit, ...]:
    return tuple(suspect.culprit for suspect in off)


# ------------------------------------------------------------ what is said
def _result(
    bench: Bench, by: str | None, status: str, findings: list[Finding], again: Callable[[], list[str]]
) -> Bisection:
    bisection = Bisection(bench.name, by or "", status, tuple(findings), tuple(bench.trials), bench.reference)
    commands = [shlex.join(again())] if status != AGREES else []
    if bisection.culprits:
        off = [part for culprit in bisection.culprits for part in ("--off", culprit.switch)]
        commands.append(shlex.join([*again(), *off]))
    return replace(bisection, commands=tuple(commands), hint=_hint(bisection))


def _hint(bisection: Bisection) -> str:
    if bisection.status == AGREES:
        return ""
    if bisection.status == FOUND:
        return "tvm-ext verify --layers shows the first value that is wrong" if bisection.by else ""
    if not bisection.by:
        always = "the import, the generic way or a pass that is always on is to blame"
        return f"{always}: tvm-ext verify --layers shows the first value that is wrong"
    return f"try by {_OTHERS[bisection.by]}, or leave --by out for all in turn"


# ------------------------------------------------------------ delta debugging
T = TypeVar("T")


def minimal_set(items: Sequence[T], helps: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A set of items that helps, of which none can be left out (1-minimal), also where several have to be off.

    The algorithm ddmin of A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
    2002: of one culprit it is a binary search; where two culprits stand in different halves, the complements of ever
    smaller parts are tried.

    Args:
        items: all of which together help.
        helps: whether a set of them does; not called for all of them, and never for none.
    """
    smallest, parts = tuple(items), 2
    while len(smallest) > 1:
        pieces = _split(smallest, min(parts, len(smallest)))
        if (smaller := next((piece for piece in pieces if helps(piece)), None)) is not None:
            smallest, parts = smaller, 2
            continue
        rests = [tuple(item for item in smallest if item not in piece) for piece in pieces] if len(pieces) > 2 else []
        if (smaller := next((rest for rest in rests if helps(rest)), None)) is not None:
            smallest, parts = smaller, max(len(pieces) - 1, 2)
            continue
        if len(pieces) == len(smallest):
            break
        parts = 2 * len(pieces)
    return smallest


def _split(items: tuple[T, ...], parts: int) -> list[tuple[T, ...]]:
    """Parts of about one size, in order."""
    bounds = [len(items) * i // parts for i in range(parts + 1)]
    return [items[low:high] for low, high in itertools.pairwise(bounds)]
