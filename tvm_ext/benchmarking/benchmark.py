"""benchmark: contenders in processes of their own, interleaved rounds, outputs checked before any time counts."""

import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..byoc.registry import backend_named
from ..core.errors import InputError, OptionError, check_whole, is_number
from ..core.machine import available_cores
from ..core.options import DEFAULT_BATCH, DEFAULT_SIZES, CompileOptions
from ..core.sample_inputs import seeded_inputs
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.shapes import free_shapes, input_specs
from ..frontend.reading.signature import read_with
from ..runtime.sizes.symbols import checked_sizes, dimensions_of, named_sizes, sizes_text
from ..runtime.spec import TensorSpec
from ..runtime.values import spread
from ..verification.arrays import load_npz, save_npz
from ..verification.environment import describe_machine
from ..verification.verify import VerifyReport, report_of
from .contenders import CONTENDERS
from .noise import calibrate, load_warning, noise_warnings
from .process import Worker, WorkerError, runnable
from .table import BenchmarkRow, BenchmarkTable

OURS, REFERENCE = "tvm_ext", "onnxruntime"
LEAST_ROUNDS = 7


def benchmark(
    model: Any,
    against: Sequence[str] = ("onnxruntime",),
    threads: int | None = None,
    *,
    rounds: int = 9,
    seconds_per_round: float = 0.5,
    seed: int = 0,
    timeout: float = 600.0,
    inputs: Mapping[str, np.ndarray] | None = None,
    python: str | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> BenchmarkTable:
    """Time a model against other runtimes; see :func:`tvm_ext.benchmark`. `progress` is told what happens."""
    names = _contenders(against)
    pythons = _pythons(python, names)
    settings = CompileOptions.of(**options, threads=threads)
    rounds, seed = check_whole("rounds", rounds, LEAST_ROUNDS), check_whole("seed", seed)
    for name, value in (("seconds_per_round", seconds_per_round), ("timeout", timeout)):
        if not is_number(value) or value <= 0:
            raise OptionError(f"{name}={value!r}: a number above 0 is needed")
    threads = settings.threads or available_cores()
    source, settings = read_with(model, settings)
    inputs = spread(inputs or {}) if source.arguments else inputs or {}
    if settings.freeze or source.arguments:  # every contender gets the model of tensors, with the values inside
        source, options = frozen_source(source, settings.freeze), {**options, "shapes": dict(settings.shapes)}
        model, options = source.proto, {key: value for key, value in options.items() if key != "freeze"}
    busy = load_warning(available_cores())
    with tempfile.TemporaryDirectory(prefix="tvm-ext-bench-") as folder, contextlib.ExitStack() as stack:
        path = _stored(model, source, pathlib.Path(folder))
        specs, at = _sized_specs(source, settings, inputs, sizes)
        save_npz(pathlib.Path(folder) / "inputs.npz", _inputs(specs, inputs, seed))
        race = Race(path, pathlib.Path(folder), threads, options, timeout, progress or (lambda _: None), stack, pythons)
        race.fixed = {spec.name: list(spec.sizes) for spec in specs} if at else {}
        race.warnings = [busy] if busy else []
        race.prepare(names)
        race.run(rounds, seconds_per_round)
        return race.table(", ".join(filter(None, (source.name, sizes_text(at)))), names)


@dataclass
class Race:
    """The contenders of one benchmark: prepares them one after the other, checks them, runs the rounds."""

    path: str
    folder: pathlib.Path
    threads: int
    options: Mapping[str, Any]
    timeout: float
    progress: Callable[[str], None]
    stack: contextlib.ExitStack
    pythons: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, list[int]] = field(default_factory=dict)  # shapes for peers, where ours are symbolic
    workers: dict[str, Worker] = field(default_factory=dict)
    ready: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    of_range: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    calibration: list[float] = field(default_factory=list)
    reference: str = ""
    warnings: list[str] = field(default_factory=list)

    def prepare(self, names: Sequence[str]) -> None:
        """Start every contender, and compare its outputs with onnxruntime's, which runs whether it is timed or not."""
        for name in dict.fromkeys((REFERENCE, *names)):
            self.progress(f"preparing {name}")
            self._prepare_one(name)
        if REFERENCE in self.ready:
            self.reference = self.ready[REFERENCE]["version"]
            for name in list(self.workers):
                self._check(name)
        else:
            self.warnings.append(f"outputs were not compared: onnxruntime: {self.reasons[REFERENCE]}")
        if REFERENCE not in names:
            self._drop(REFERENCE)

    def run(self, rounds: int, seconds: float) -> None:
        """Interleaved rounds; every second one in the opposite order. A contender that fails drops out."""
        for number in range(rounds):
            if not self.workers:
                return
            self.progress(f"round {number + 1} of {rounds}")
            self.calibration.append(calibrate(self.threads))
            order = list(self.workers)
            for name in order if number % 2 == 0 else reversed(order):
                with self._dropping(name):
                    answer = self.workers[name].ask({"round": {"seconds": seconds}}, self.timeout)
                    self.samples[name].append(tuple(answer["samples"]))

    def table(self, label: str, names: Sequence[str]) -> BenchmarkTable:
        """The table of all contenders, with warnings where the rounds scatter.

        Args:
            label: of the model.
            names: of the rows, in order.
        """
        machine = describe_machine()
        seen = self.ready.get(OURS, {}).get("details", {}).pop("machine", None)
        if seen:
            machine |= {key: seen[key] for key in ("isa", "mcpu", "l1d", "l2", "l3")}
        rows = tuple(self._row(name) for name in names)
        table = BenchmarkTable(label, machine, self.threads, rows, (), tuple(self.calibration), self.reference)
        ratios = {name: table.round_ratios(name) for name in names[1:]}
        warned = [*self.warnings, *noise_warnings({k: v for k, v in ratios.items() if v}, self.calibration)]
        return replace(table, warnings=tuple(warned))

    def _prepare_one(self, name: str) -> None:
        worker = self.workers[name] = Worker(self.threads, python=self.pythons.get(name))
        self.stack.callback(worker.close)
        with self._dropping(name):
            self.ready[name] = worker.ask(self._message(name), self.timeout)["ready"]
            self.samples[name] = []

    def _message(self, name: str) -> dict[str, Any]:
        """What a contender is asked to prepare."""
        options = self.options if name == OURS or not self.fixed else {**self.options, "shapes": self.fixed}
        return {
            "contender": name, "model": self.path, "threads": self.threads, "options": _plain(options),
            "inputs": str(self.folder / "inputs.npz"), "outputs": str(self._outputs(name)),
        }  # fmt: skip

    def _check(self, name: str) -> None:
        outputs, wanted = self._found(name), self._found(REFERENCE)
        report = report_of(outputs, wanted, self.reference, tolerance=self._tolerance(name))
        self.of_range[name] = report.of_range
        if wrong := self._wrong(name, report):
            self._drop(name, f"outputs disagree: {wrong[0]}")

    def _tolerance(self, name: str) -> float | None:
        """Largest error of a contender, of an output's range; None for that of its dtype."""
        tolerance: float | None = self.ready[name].get("details", {}).get("tolerance")
        return tolerance

    def _wrong(self, name: str, report: VerifyReport) -> Sequence[str]:
        """What disagrees, for which a contender has no time."""
        return report.wrong

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except WorkerError as error:
            self._drop(name, error.message)

    def _drop(self, name: str, reason: str = "") -> None:
        if name in self.workers:
            self.workers.pop(name).close()
        if reason:
            self.reasons[name] = reason
            self.samples.pop(name, None)

    def _row(self, name: str) -> BenchmarkRow:
        ready, reason = self.ready.get(name, {}), self.reasons.get(name, "")
        return BenchmarkRow(
            name, ready.get("version", ""), tuple(self.samples.get(name, ())), self.of_range.get(name), reason,
            ready.get("prepare_seconds"), ready.get("details", {}),
        )  # fmt: skip

    def _found(self, name: str) -> dict[str, np.ndarray]:
        stored = load_npz(self._outputs(name))
        return {output: stored[f"arr_{i}"] for i, output in enumerate(self.ready[name]["outputs"])}

    def _outputs(self, name: str) -> pathlib.Path:
        return self.folder / f"outputs-{name}.npz"


def _contenders(against: Sequence[str]) -> list[str]:
    others = [against] if isinstance(against, str) or not isinstance(against, Iterable) else list(against)
    unknown = [name for name in others if not isinstance(name, str) or name not in CONTENDERS or name == OURS]
    if unknown:
        choices = ", ".join(name for name in CONTENDERS if name != OURS)
        raise OptionError(f"against={unknown}: no such contender", fix=f"choose of: {choices}")
    return list(dict.fromkeys([OURS, *others]))


def _pythons(python: str | Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    """The Python of each contender that has one of its own; a single one is that of all peers."""
    if isinstance(python, str):
        python = {name: python for name in names if name not in (OURS, REFERENCE)}
    unknown = [name for name in python or () if name not in names or name == OURS]
    if unknown:
        choices = ", ".join(name for name in names if name != OURS)
        raise OptionError(f"python={unknown}: not among the contenders", fix=f"choose of: {choices}")
    return {name: runnable(path) for name, path in (python or {}).items()}


def _sized_specs(
    source: Source, settings: CompileOptions, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None
) -> tuple[list[TensorSpec], dict[str, int]]:
    """The inputs at one size of their symbolic dimensions, and the sizes.

    They are those that are stated, else those of the given inputs, else the largest; of a batch without bounds the
    largest default one that a program with bounds takes too.

    Raises:
        OptionError: a size is missing, unknown or out of its bounds, or stated beside inputs that have it.
        InputError: a given input fits no sizes.
    """
    named = settings.named(free_shapes(source.proto.graph, dict(settings.shapes)))
    specs = input_specs(source.proto.graph, dict(named.shapes), source.name)
    dimensions = dimensions_of(specs, () if named.by_rows else named.symbols)
    known = [spec for spec in specs if spec.name in inputs]
    own = named_sizes(known, [np.shape(inputs[spec.name]) for spec in known], dimensions) if dimensions else {}
    if sizes is not None and own:
        raise OptionError(f"sizes={sizes!r}, and the inputs have {sizes_text(own)}", fix="leave the sizes out")
    batches = [n for n in named.sizes if named.sizes != DEFAULT_SIZES or n <= DEFAULT_BATCH[1]]
    largest = {dimension.name: max(batches) if named.by_rows else dimension.most for dimension in dimensions}
    at = checked_sizes(dimensions, {**largest, **own} if sizes is None else sizes)
    return [spec.sized(at) for spec in specs], at


def _inputs(specs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The given inputs, and seeded ones for the rest."""
    known = {spec.name: spec for spec in specs}
    for name, array in arrays.items():
        if name not in known:
            raise InputError(f"inputs: the model has no input {name!r}", fix=f"the model takes {sorted(known)}")
        spec, kind = known[name], (array.shape, str(array.dtype))
        if kind != (spec.shape, spec.dtype):
            raise InputError(f"input {name!r}: {kind[1]} {kind[0]}, where {spec.dtype} {spec.shape} is needed")
    return {**seeded_inputs((spec for spec in specs if spec.name not in arrays), seed), **arrays}


def _stored(model: Any, source: Source, folder: pathlib.Path) -> str:
    """The model as a file that every worker can read."""
    if isinstance(model, str | os.PathLike):
        return os.path.abspath(model)
    path = folder / "model.onnx"
    path.write_bytes(source.proto.SerializeToString())
    return str(path)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON values; a back end by its name, with the module that a worker imports for it, and from where."""
    stated = dict(options.get("shapes") or {}).items()
    shapes = {name: [dim if isinstance(dim, str) else int(dim) for dim in shape] for name, shape in stated}
    plain = {**options, "shapes": shapes}
    if (offload := options.get("offload")) is not None:
        backend = backend_named(offload) if isinstance(offload, str) else offload
        plain |= {"offload": backend.name, "imports": [backend.module], "path": sys.path}
    return plain
