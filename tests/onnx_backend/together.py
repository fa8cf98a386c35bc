"""Many cases as one model: most of a small compile is what every compile takes."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from tests.oracles.compare import close, difference
from tests.oracles.outcome import Outcome, attempt
from tests.oracles.pool import Service

from .cases import Case
from .contenders import ours

#: Cases of one model.
_MOST = 16


def groups_of(cases: Iterable[Case]) -> Iterator[tuple[Case, ...]]:
    """The cases of each set of operators' versions, in groups of `_MOST`."""
    import onnx

    def versions(case: Case) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((o.domain, o.version) for o in onnx.ModelProto.FromString(case.model).opset_import))

    for _, alike in itertools.groupby(sorted(cases, key=versions), versions):
        same = [*alike]
        yield from (tuple(same[at : at + _MOST]) for at in range(0, len(same), _MOST))


def together(cases: tuple[Case, ...]) -> Case:
    """One case of all, side by side: names of the n-th begin with cN_."""
    import onnx
    from onnx.compose import add_prefix

    models = [add_prefix(onnx.ModelProto.FromString(case.model), f"c{n}_") for n, case in enumerate(cases)]
    whole = models[0]
    for model in models[1:]:
        for part in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
            getattr(whole.graph, part).extend(getattr(model.graph, part))
        whole.functions.extend(model.functions)
        whole.ir_version = max(whole.ir_version, model.ir_version)
    return dataclasses.replace(
        cases[0], name="together", model=whole.SerializeToString(),
        inputs=tuple(x for case in cases for x in case.inputs),
        outputs=tuple(y for case in cases for y in case.outputs),
        frozen=tuple(f"c{n}_{name}" for n, case in enumerate(cases) for name in case.frozen),
    )  # fmt: skip


def answer(cases: tuple[Case, ...]) -> Outcome:
    """Whether one program gives what each case wants; its own outcome says no more than that."""

    def run() -> Outcome:
        outputs = iter(ours(together(cases)))
        for case in cases:
            own = [*itertools.islice(outputs, len(case.outputs))]
            if reason := difference(own, case.outputs, close(case.rtol, case.atol))[0]:
                return Outcome("wrong", f"{case.name}: {reason}")
        return Outcome("pass")

    return attempt(run)


SERVICE = Service(answer, seconds=120.0)
