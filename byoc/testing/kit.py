"""The kit: all cases of a back end, as tests or as one report."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backend import Backend
from . import compiling, deploying, refusing
from .case import Case
from .graphs import KitModel
from .models import float_models, quantized_models
from .subject import Subject

_OF_A_MODEL = (
    ("numbers", compiling.numbers, "the outputs of onnxruntime, and the same bits in each run"),
    ("report", compiling.report, "a place and a reason for each ONNX node"),
    ("runner", compiling.runner, "a runner that writes all of its outputs and none of its inputs"),
)
_OF_A_BACK_END: tuple[tuple[str, str, Callable[[Subject], str], str], ...] = (
    ("programs", "twice", compiling.equal_programs, "the same programs when compiled again"),
    ("pays", "default", compiling.pays, "right outputs, and regions that are estimated to be faster there"),
    *(("refusal", f"skip-{by}", functools.partial(refusing.skipped, by=by), "the node on the CPU")
      for by in ("node", "onnx", "tvm")),
    ("refusal", "minimum-work", refusing.minimum_work, "everything on the CPU, with minimum_work in the reason"),
    ("refusal", "option", refusing.unknown_option, "an OptionError that names the option"),
    ("deploy", "fresh-process", deploying.fresh_process, "the same bits, without a compiler"),
    ("deploy", "no-driver", deploying.driver_missing, "an ArtifactError that names the module to import"),
    ("deploy", "changed", deploying.changed_artifact, "an ArtifactError"),
    ("deploy", "threads", deploying.many_threads, "the same bits in all threads"),
    ("driver", "damaged", deploying.damaged_programs, "an error for a damaged program, or right outputs"),
    ("driver", "fails", deploying.failing_driver, "a DriverError that names back end and region"),
)  # fmt: skip


@dataclass(frozen=True)
class KitRow:
    """One check: what, of which model or pattern, whether it holds, and facts, or what came instead."""

    check: str
    about: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class KitReport:
    """What the kit found; `str()` prints it.

    Attributes:
        backend: its name.
        rows: in the order in which they were checked.
    """

    backend: str
    rows: tuple[KitRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all checks hold; a report without rows proves nothing."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def failed(self) -> tuple[KitRow, ...]:
        """Checks that do not hold."""
        return tuple(row for row in self.rows if not row.ok)

    def __str__(self) -> str:
        width = max((len(f"{row.check}-{row.about}") for row in self.rows), default=0)
        lines = [
            f"{'ok' if row.ok else 'FAIL':4}  {f'{row.check}-{row.about}':{width}}  {row.detail}".rstrip()
            for row in self.rows
        ]
        return "\n".join([*lines, f"back end {self.backend!r}: {len(self.rows)} checks, {len(self.failed)} failed"])


def check_backend(
    backend: Backend, options: Mapping[str, Any] | None = None, models: Sequence[KitModel] = ()
) -> KitReport:
    """Check a back end; raises nothing of what it finds.

    Args:
        backend: its manifest. The module of its driver is imported in other processes, so it must be one.
        options: `offload_options` of all compiles.
        models: models of your own besides those of the kit.
    """
    return KitReport(backend.name, tuple(_row(case) for case in cases(backend, options, models)))


def cases(
    backend: Backend, options: Mapping[str, Any] | None = None, models: Sequence[KitModel] = ()
) -> tuple[Case, ...]:
    """The same checks one by one, for pytest:

        @pytest.mark.parametrize("case", testing.cases(BACKEND), ids=str)
        def test_kit(case):
            case.run()

    The cases of one call share what they compile. A case that runs later compiles what those before it did not.
    """
    every = (*float_models(), *quantized_models())
    anchors = {name for pattern in backend.patterns for name in pattern.anchors}
    dtypes = set(backend.limits.dtypes)
    fitting = [m for m in every if anchors & {*m.anchors} and dtypes >= {*m.dtypes}]
    subject = Subject(backend, dict(options or {}), (*fitting, *models))
    others = [m for m in every if m.dtypes == ("float32",) and len(m.proto.graph.node) == 1 and not (
        {*m.anchors} & _operators(backend))]  # fmt: skip
    return tuple(_cases(subject, others[:1]))


def _operators(backend: Backend) -> set[str]:
    return {name for p in backend.patterns for name in (*p.anchors, *p.prologue, *p.epilogue)}


def _cases(subject: Subject, others: Sequence[KitModel]) -> Iterator[Case]:
    backend = subject.backend
    for pattern in backend.patterns:
        action = functools.partial(compiling.pattern_matches, subject, pattern)
        yield Case("pattern", pattern.name, "a match in one of the models", action)
    for model in subject.models:
        for check, function, promise in _OF_A_MODEL:
            yield Case(check, model.name, promise, functools.partial(function, subject, model))
        if backend.disassemble is not None:
            action = functools.partial(compiling.disassembly, subject, model)
            yield Case("disassembly", model.name, "a text for each program", action)
    for model in others:
        action = functools.partial(refusing.unknown_operator, subject, model)
        yield Case("refusal", "operator", "everything on the CPU, with a reason", action)
    if "relax.matmul" in _operators(backend) and not {*refusing.DTYPES} <= {*backend.limits.dtypes}:
        action = functools.partial(refusing.other_dtype, subject)
        yield Case("refusal", "dtype", "everything on the CPU, with the dtype in the reason", action)
    for check, about, whole, promise in _OF_A_BACK_END:
        yield Case(check, about, promise, functools.partial(whole, subject))


def _row(case: Case) -> KitRow:
    try:
        return KitRow(case.check, case.about, True, case.run())
    except AssertionError as error:
        return KitRow(case.check, case.about, False, str(error).removeprefix(f"{case}: "))
