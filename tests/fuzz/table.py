"""The committed results: a letter for each mutant, the text of what is wrong, and a summary."""

import collections
import json
import pathlib
from dataclasses import asdict, dataclass, field

from tests.oracles.outcome import kind_of
from tests.oracles.table import markdown, read_rows

PATH = pathlib.Path(__file__).with_name("results.json")
#: Letter -> (kind of an outcome, what it says).
LETTERS = {
    "p": ("agrees", "compiled, and agrees with onnxruntime"),
    "a": ("alone", "compiled; onnxruntime refuses the file or the inputs, crashes, or disagrees with itself"),
    "b": ("large", "compiled, and not run: it would take over 256 MiB"),
    "r": ("refused", "refused, with the reason"),
    "i": ("internal", "refused, naming the node, with a reason in TVM's words"),
    "f": ("failed", "an error that is not one of this library's refusals"),
    "m": ("memory", "more memory than the limit"),
    "l": ("leak", "bytes of a file outside the model's folder"),
    "w": ("wrong", "another answer than onnxruntime's"),
    "h": ("hang", "over 30 s"),
    "c": ("crash", "the process died"),
}
BAD = "fmlwhc"
#: No outcome yet.
OPEN = "."
_LINE = 100


@dataclass
class Table:
    """Outcomes of mutants 0, 1, ... of a series.

    Attributes:
        series: number of the series.
        outcomes: a letter each.
        findings: number -> outcome, of those that are bad.
        mutators: mutator -> letter -> how many.
        about: machine, versions, limits.
        seconds: that all took.
    """

    series: int
    outcomes: list[str] = field(default_factory=list)
    findings: dict[str, str] = field(default_factory=dict)
    mutators: dict[str, dict[str, int]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def note(self, number: int, how: tuple[str, ...], outcome: str) -> str:
        """Put an outcome in its place; its letter."""
        letter = letter_of(outcome)
        self.outcomes += [OPEN] * (number + 1 - len(self.outcomes))
        for name in how:
            counts = self.mutators.setdefault(name, {})
            if (before := self.outcomes[number]) != OPEN:
                counts[before] = counts.get(before, 0) - 1
            counts[letter] = counts.get(letter, 0) + 1
        self.outcomes[number] = letter
        self.findings.pop(str(number), None)
        if letter in BAD:
            self.findings[str(number)] = outcome
        return letter


def letter_of(outcome: str) -> str:
    """The letter of an outcome.

    Raises:
        KeyError: no outcome begins so.
    """
    return {kind: letter for letter, (kind, _) in LETTERS.items()}[kind_of(outcome)]


def read_table(path: pathlib.Path = PATH) -> Table:
    """A table that was written; an empty one if there is none."""
    fields = read_rows(path)
    return Table(**{**fields, "outcomes": list("".join(fields["outcomes"]))}) if fields else Table(0)


def write_table(table: Table, path: pathlib.Path = PATH) -> None:
    """Write the table, and its summary beside it."""
    text = "".join(table.outcomes)
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    path.write_text(json.dumps({**asdict(table), "outcomes": lines}, indent=0) + "\n")
    path.with_suffix(".md").write_text(summary(table))


def summary(table: Table) -> str:
    """The table in numbers, as Markdown."""
    counts = collections.Counter(table.outcomes)
    done = sum(n for letter, n in counts.items() if letter != OPEN)
    bad = sum(counts[letter] for letter in BAD)
    parts = [
        "# Mutated ONNX files\n",
        f"{done} mutants of series {table.series}, made and judged by `python -m tests.fuzz.refresh` in "
        f"{table.seconds:.0f} s: {bad} findings.\n",
        "".join(f"* {key}: {text}\n" for key, text in table.about.items()),
        markdown(
            ["outcome", "mutants", "what it says"],
            ([kind, counts[letter], words] for letter, (kind, words) in LETTERS.items()),
        ),
        "## By mutator\n",
        markdown(
            ["mutator", *(kind for kind, _ in LETTERS.values())],
            ([name, *(of.get(letter, 0) for letter in LETTERS)] for name, of in sorted(table.mutators.items())),
        ),
    ]
    return "\n".join(parts)
