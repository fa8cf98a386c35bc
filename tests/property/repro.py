"""Runs one case again, and saves it: python -m tests.property.repro SEED|FOLDER [--save FOLDER] [--nodes N]

A folder holds model.onnx, inputs.npz and case.json (options of `compile`, how far outputs may be off).
"""

import argparse
import dataclasses
import json
import pathlib
import random
import sys
from collections.abc import Sequence

import numpy as np
import onnx

from tests.oracles.outcome import Outcome
from tests.oracles.pool import Judge

from .cases import Case, make_case
from .judge import SERVICE


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the case; 1 if it does not pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.repro", description=__doc__)
    parser.add_argument("case", help="a seed, or a folder that --save wrote")
    parser.add_argument("--save", type=pathlib.Path, help="where to put model and inputs")
    parser.add_argument("--nodes", type=int, default=6, help="grow the graph of a seed by so many steps at most")
    args = parser.parse_args(argv)
    is_seed = args.case.isdigit()
    case = make_case(random.Random(int(args.case)), f"seed {args.case}", args.nodes) if is_seed else load(args.case)
    if args.save:
        save(case, args.save)
    judge = Judge(SERVICE)
    outcome = judge(case)
    judge.close()
    print(describe(case, outcome))
    return int(outcome.kind not in ("pass", "float64"))


def save(case: Case, folder: str | pathlib.Path) -> None:
    """Write model, inputs and the rest into a folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model)
    np.savez(folder / "inputs.npz", **{f"x{i}": x for i, x in enumerate(case.feeds.values())})
    facts = dataclasses.asdict(dataclasses.replace(case, model=b"", feeds=dict.fromkeys(case.feeds)))
    del facts["model"]
    (folder / "case.json").write_text(json.dumps(facts, indent=1))


def load(folder: str | pathlib.Path) -> Case:
    """What :func:`save` wrote."""
    folder = pathlib.Path(folder)
    facts = json.loads((folder / "case.json").read_text())
    with np.load(folder / "inputs.npz") as arrays:
        feeds = {name: arrays[f"x{i}"] for i, name in enumerate(facts["feeds"])}
    return Case(
        **{**facts, "errors": tuple(facts["errors"]), "model": (folder / "model.onnx").read_bytes(), "feeds": feeds}
    )


def describe(case: Case, outcome: Outcome) -> str:
    """The outcome, the options, the graph as text, and the inputs' shapes."""
    model = onnx.ModelProto.FromString(case.model)
    shapes = ", ".join(f"{name}: {x.dtype}{list(x.shape)}" for name, x in case.feeds.items())
    text = onnx.printer.to_text(model)
    return f"{case.name} ({case.kind}): {outcome}\noptions: {case.options}\n{shapes}\n{text}"


if __name__ == "__main__":
    sys.exit(main())
