"""A profile: the launches of a model with their times, what is outside of them, and what the machine could do."""

from __future__ import annotations

import functools
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import OptionError, UnsupportedError
from ...core.pages.page import Figure, Part, Shown
from ...runtime.files import path_of, write_text
from ...runtime.plain import read
from ...runtime.sizes.symbols import sizes_text
from ...runtime.table import plain_fields
from ...tuning.in_model import Ratio
from .clock import Overhead
from .compare import Comparison, compare
from .launch import Launch
from .measure import Timeline
from .roofline import Roofline, roofline_of
from .roofs import Roofs
from .rows import Row, rows_of
from .text import head, table
from .trace import trace_of

FORMAT = "tvm-ext profile 1"
_FIX = "make one: tvm-ext profile MODEL -o profile.json"


@dataclass(frozen=True)
class Profile(Shown):
    """What :func:`tvm_ext.profile` measured.

    Attributes:
        model, sha256: the model's name and digest.
        machine: the machine and the versions, as `benchmark` describes them, with "isa".
        threads: that kernels use; batch: rows of a symbolic batch that was profiled, 0 if no dimension is symbolic.
        launches: of the kernels, in the order of a run.
        whole: seconds of an undisturbed run, one a round.
        timelines: of the least run under observation of each round.
        roofs: what the machine can do at most.
        overhead: what looking costs.
        notes: what a reader must know, such as why there are no facts of the machine code.
        sizes: of symbolic dimensions that were profiled; none of a model of numbers, or of a batch.
    """

    model: str
    sha256: str
    machine: Mapping[str, Any]
    threads: int
    batch: int
    launches: tuple[Launch, ...]
    whole: tuple[float, ...]
    timelines: tuple[Timeline, ...]
    roofs: Roofs
    overhead: Overhead
    notes: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model and its sizes: "bert, N 3, S 37", "resnet18, batch 4"."""
        at = sizes_text(self.sizes or ({"batch": self.batch} if self.batch else {}))
        return f"{self.model}, {at}" if at else self.model

    @property
    def seconds(self) -> float:
        """Of an undisturbed run, median of the rounds."""
        return statistics.median(self.whole)

    @property
    def in_kernels(self) -> float:
        """Seconds of all kernels of a run, each one's median."""
        return sum(launch.median for launch in self.launches)

    @property
    def outside(self) -> float:
        """Seconds of an undisturbed run that are no kernel's: the VM, memory, the call. Negative: less than noise."""
        return self.seconds - self.in_kernels

    @functools.cached_property
    def coverage(self) -> Ratio:
        """Kernels' time over that of the undisturbed run of the same round."""
        sums = [sum(launch.seconds[at] for launch in self.launches) for at in range(len(self.whole))]
        return Ratio.of(sums, self.whole)

    def rows(self, group_by: str = "launch", top: int = 0) -> tuple[Row, ...]:
        """Launches, alone or together.

        Args:
            group_by: "launch" (in order), "kernel", "recipe" or "node" (launches for the same ONNX nodes).
            top: only so many, those that take longest, first; 0 for all, in order.

        Raises:
            OptionError: no such grouping.
        """
        rows = rows_of(self.launches, group_by, self.seconds, self.roofs)
        return tuple(sorted(rows, key=lambda row: -row.median)[:top]) if top else rows

    def compare(self, other: Profile) -> Comparison:
        """This profile as what was before, `other` as what is now; kernels are matched by their ONNX nodes.

        Raises:
            OptionError: they are of different models.
        """
        return compare(self, other)

    def roofline(self, group_by: str = "launch") -> Roofline:
        """The rows on the roofline of this machine; it draws itself as text, SVG and PNG.

        Args:
            group_by: as of :meth:`rows`.
        """
        return roofline_of(self, group_by)

    def trace(self, path: str | os.PathLike[str], runs: int = 1) -> None:
        """Write the least runs under observation for chrome://tracing and ui.perfetto.dev.

        Args:
            path: file to write.
            runs: how many of them, of different rounds.

        Raises:
            OptionError: the profile has not so many runs.
            ToolError: the file cannot be written.
        """
        write_text(path, json.dumps(trace_of(self, runs)) + "\n")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`as_dict` as JSON to a `path`, the whole file or none; :meth:`load` reads it."""
        write_text(path, json.dumps(self.as_dict()) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read what :meth:`save` wrote.

        Raises:
            OptionError: the file is missing, or is none.
        """
        name = path_of(path, OptionError, "the path of a profile")
        try:
            fields = json.loads(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise OptionError(f"cannot read {name!r}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise OptionError(f"{name!r} is no profile: it is no JSON ({error})", fix=_FIX) from error
        return cls.from_dict(fields, name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = {**plain_fields(self), "median": self.seconds, "outside": self.outside}
        return {"format": FORMAT, "seconds": fields.pop("whole"), **fields, "kernels_over_run": self.coverage.median}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], name: str = "the profile") -> Profile:
        """What :meth:`as_dict` made.

        Args:
            fields: the values.
            name: what errors call it.

        Raises:
            OptionError: it is no profile, or one of another version.
        """
        if not isinstance(fields, Mapping) or fields.get("format") != FORMAT:
            stated = fields.get("format") if isinstance(fields, Mapping) else type(fields).__name__
            raise OptionError(f"{name} is no profile: its format is {stated!r}, not {FORMAT!r}", fix=_FIX)
        try:
            profile = read(cls, {**fields, "whole": fields.get("seconds")})
        except (TypeError, ValueError, OverflowError) as error:
            raise OptionError(f"{name} is no profile: {type(error).__name__}: {error}", fix=_FIX) from error
        lengths = {len(launch.seconds) for launch in profile.launches}
        if not profile.whole or lengths != {len(profile.whole)}:
            raise OptionError(f"{name} is no profile: each launch needs a time for each of its rounds", fix=_FIX)
        return profile

    def parts(self) -> list[Part]:
        """What was measured and how, a row a launch, the roofline."""
        parts = [*head(self), table(self, self.rows(), "launch")]
        try:
            return [*parts, Figure(self.roofline().svg)]
        except UnsupportedError:  # nothing but kernels whose work is not known
            return parts
