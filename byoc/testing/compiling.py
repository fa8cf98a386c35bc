"""Checks of what is compiled: patterns that match, numbers, reports, programs and what runs them."""

import json
import math

import numpy as np

from ..backend import Pattern
from ..region import Value
from .case import UnexpectedError, need
from .graphs import KitModel
from .subject import Subject, compared, faults, feeds_of, same_bits

_BATCHES = (1, 2, 5)
_SEEDS = (0, 1)


def pattern_matches(subject: Subject, pattern: Pattern) -> str:
    """A pattern is found in one of the models at least."""
    for model in subject.models:
        try:
            regions = list(subject.regions(model))
        except Exception:  # the check of its numbers says what is wrong with it
            continue
        if any(composite.pattern == pattern.name for region, _ in regions for composite in region.composites):
            return f"in {model}"
    anchors = ", ".join(pattern.anchors)
    fix = f"if no model has {anchors}, give models of your own"
    raise UnexpectedError(f"it is in none of {len(subject.models)} models; {fix}")


def numbers(subject: Subject, model: KitModel) -> str:
    """The outputs are those of onnxruntime, for other inputs too, and the same bits when run again."""
    compiled, worst = subject.compiled(model), 0.0
    for batch in _BATCHES if model.specialize else (1,):
        for seed in _SEEDS:
            feeds = feeds_of(compiled, seed, batch)
            outputs = compiled.run(feeds)
            result = compared(outputs, feeds, model)
            need(result.ok, f"{faults(result)} (seed {seed}, batch {batch}; the model: {model.about})")
            need(same_bits(outputs, compiled.run(feeds)), "other bits in the second run of the same inputs")
            worst = max(worst, *(o.of_range for o in result.outputs))
    report = compiled.offload_report()
    return f"{len(report.offloaded)} of {len(report.ops)} nodes there, error {worst:.1e} of the range"


def report(subject: Subject, model: KitModel) -> str:
    """Every ONNX node has a place and a reason; facts and costs are plain, finite values."""
    report = subject.compiled(model).offload_report()
    missing = {node.name for node in model.proto.graph.node} ^ {row.node for row in report.ops}
    need(not missing, f"nodes that only the model, or only the report, has: {sorted(missing)}")
    places = {"cpu", "compile time", *(region.name for region in report.regions)}
    for row in report.ops:
        need(row.place in places and bool(row.reason), f"node {row.node!r}: place {row.place!r}, reason {row.reason!r}")
    for region in report.regions:
        finite = region.seconds is None or (math.isfinite(region.seconds) and region.seconds >= 0)
        need(finite, f"cost of {region.name} is {region.seconds}")
        text = json.dumps(dict(region.facts), allow_nan=False)
        words = [word for word in ("nan", "inf", "-inf") if f'"{word}"' in text]
        need(not words, f"facts of {region.name} are not finite: {', '.join(words)}")
    need(subject.backend.name in str(report), f"a report without the back end's name:\n{report}")
    return f"{len(report.ops)} nodes, {len(report.regions)} regions"


def equal_programs(subject: Subject) -> str:
    """Compiled again, a model has the same programs."""
    model = subject.main
    first, second = (compiled.offload_programs() for compiled in (subject.compiled(model), subject.compile(model)))
    changed = [name for name in {*first, *second} if first.get(name) != second.get(name)]
    need(not changed, f"other bytes in {', '.join(sorted(changed))}")
    return f"{sum(map(len, first.values()))} bytes"


def runner(subject: Subject, model: KitModel) -> str:
    """The driver's runner reads its inputs, writes all of its outputs, and is the same the second time."""
    rng, count = np.random.default_rng(0), 0
    for region, program in subject.regions(model):
        run = subject.backend.driver(program)
        inputs = [_random(value, rng) for value in region.inputs]
        kept = [array.copy() for array in inputs]
        results = []
        for fill in (0x55, 0xAA):
            outputs = [_filled(value, fill) for value in region.outputs]
            run(inputs, outputs)
            results.append([output.tobytes() for output in outputs])
        same = all(a.tobytes() == b.tobytes() for a, b in zip(inputs, kept, strict=True))
        need(same, f"{region.name}: an input was written to")
        need(results[0] == results[1], f"{region.name}: outputs depend on what was in their memory before")
        count += 1
    return f"{count} regions"


def disassembly(subject: Subject, model: KitModel) -> str:
    """Each program has a text."""
    disassemble = subject.backend.disassemble
    assert disassemble is not None
    texts = [disassemble(program) for _, program in subject.regions(model)]
    need(all(isinstance(text, str) and text.strip() for text in texts), f"a program without text among {texts}")
    return f"{sum(text.count(chr(10)) + 1 for text in texts)} lines"


def pays(subject: Subject) -> str:
    """Without when='always' the outputs are right too, and each region is estimated to be faster there."""
    model = subject.main
    compiled = subject.compile(model, when="pays")
    feeds = feeds_of(compiled)
    wrong = faults(compared(compiled.run(feeds), feeds, model))
    need(not wrong, wrong)
    report = compiled.offload_report()
    known = ((r.name, r.seconds, r.host_seconds) for r in report.regions)
    slow = [name for name, there, here in known if there is not None and here is not None and there >= here]
    need(not slow, f"regions that do not pay: {', '.join(slow)}")
    return f"{len(report.offloaded)} of {len(report.ops)} nodes there"


def _random(value: Value, rng: np.random.Generator) -> np.ndarray:
    """An input of a region."""
    dtype = np.dtype(value.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(value.shape).astype(dtype)
    low, high = (0, 2) if dtype.kind == "b" else (0, 100) if dtype.kind == "u" else (-100, 100)
    return rng.integers(low, high, value.shape).astype(dtype)


def _filled(value: Value, byte: int) -> np.ndarray:
    """Memory of an output, of this byte throughout."""
    return np.full(value.nbytes, byte, np.uint8).view(value.dtype).reshape(value.shape)
