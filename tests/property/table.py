"""The committed outcomes: which seeds ran, what of them did not simply pass, and a summary in numbers."""

import hashlib
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from tests.oracles.outcome import Outcome
from tests.oracles.table import markdown, read_rows, versions, write_rows

from .cases import Case, seeded

PATH = pathlib.Path(__file__).with_name("results.json")
#: What agrees, what is said beforehand, and what must not be.
AGREES, REFUSES = ("pass", "float64"), ("refused",)


@dataclass
class Table:
    """What is known of the seeds.

    Attributes:
        generator: of the cases; outcomes of another one say nothing about these.
        machine: where they ran.
        seeds: those that ran.
        share: the largest error of those that agree with onnxruntime, as a part of what it may be.
        others: seed -> kind and reason of what did not simply pass.
        unsure: seeds that pass, and float64 does not confirm it: a value between two steps of a quantization is rounded
            there from other digits, and ONNX's reference has errors of its own.
    """

    generator: str
    machine: str = ""
    seeds: set[int] = field(default_factory=set)
    share: float = 0.0
    others: dict[int, tuple[str, str]] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)

    def add(self, seed: int, outcome: Outcome) -> None:
        """Note the outcome of a seed, in place of an older one."""
        self.seeds.add(seed)
        self.others.pop(seed, None)
        self.unsure.discard(seed)
        if outcome.kind == "pass":
            self.share = max(self.share, outcome.facts["share"])
            self.unsure |= {seed} if outcome.facts["unsure"] else set()
        else:
            self.others[seed] = (outcome.kind, outcome.reason)

    @property
    def counts(self) -> Counter[str]:
        """How many of each kind."""
        kinds = Counter(kind for kind, _ in self.others.values())
        return Counter({"pass": len(self.seeds) - len(self.others), **kinds})

    @property
    def disagreements(self) -> int:
        """Seeds that neither agree nor are refused."""
        return sum(n for kind, n in self.counts.items() if kind not in (*AGREES, *REFUSES))


def generator() -> str:
    """A short digest of what the first seeds give."""
    digest = hashlib.sha256()
    for seed in range(40):
        case = seeded(seed)
        digest.update(case.model)
        digest.update(repr(case.options).encode())
        for x in case.feeds.values():
            digest.update(x.tobytes())
    return digest.hexdigest()[:16]


def read_table(path: pathlib.Path = PATH) -> Table:
    """The table of a file; an empty one if there is none, or another generator's."""
    now, facts = generator(), read_rows(path)
    if facts.get("generator") != now:
        return Table(now)
    seeds = {seed for first, last in facts["seeds"] for seed in range(first, last + 1)}
    others = {int(k): tuple(v) for k, v in facts["others"].items()}
    return Table(now, facts["machine"], seeds, facts["share"], others, set(facts["unsure"]))


def write_table(table: Table, path: pathlib.Path = PATH, summarized: bool = True) -> None:
    """Write the table, and its summary beside it."""
    facts = {
        **asdict(table), "seeds": _ranges(table.seeds), "others": dict(sorted(table.others.items())),
        "unsure": sorted(table.unsure),
    }  # fmt: skip
    write_rows(path, facts, summary(table) if summarized else "")


def _ranges(seeds: Iterable[int]) -> list[list[int]]:
    """[first, last] of each run of seeds that follow each other."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ranges


def summary(table: Table) -> str:
    """The table in numbers, as Markdown."""
    cases = [seeded(seed) for seed in sorted(table.seeds)]
    nodes: Counter[str] = sum((case.operators() for case in cases), Counter())
    counts = table.counts
    confirmed = sum(counts[kind] for kind in AGREES) - len(table.unsure)
    kinds = ("pass", "float64", "refused", "wrong", "failed", "crash", "hang", "invalid")
    parts = [
        "# Random graphs\n",
        f"Made by `python -m tests.property.refresh`: {versions()}; {table.machine}.\n",
        f"{len(cases)} graphs, seeds {', '.join(f'{a} to {b}' for a, b in _ranges(table.seeds))}: "
        f"**{table.disagreements} disagreements**, {counts['refused']} refusals. The largest error of those that agree "
        f"with onnxruntime is {table.share:.2f} of what it may be.\n",
        f"float64, by ONNX's reference implementation, confirms {confirmed}; of the others it cannot run an operator, "
        "or a quantization rounds a tie from other digits.\n",
        "`float64`: onnxruntime's float32 and ours differ by more than that, and float64 agrees with ours. `invalid`: "
        "onnxruntime refuses the graph.\n",
        markdown(kinds, [[counts[kind] for kind in kinds]]),
        f"## What they are about\n\n{_tally(Counter(_about(case) for case in cases))}",
        f"\n## {len(nodes)} operators, {sum(nodes.values())} nodes\n\n{_tally(nodes)}",
        "\n## Other than pass\n",
        *(f"* seed {seed}: {kind}: {reason}" for seed, (kind, reason) in sorted(table.others.items())),
    ]
    return "\n".join(parts) + "\n"


def _about(case: Case) -> str:
    """A case's kind, and options other than those of the kind."""
    own = {"shapes", "specialize", "offload", "offload_options"}
    extra = [f"{k}={v}" for k, v in sorted(case.options.items()) if k not in own]
    return " ".join([case.kind, *extra])


def _tally(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.most_common())
