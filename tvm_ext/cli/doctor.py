"""`tvm-ext doctor`: check the installation: versions, linker, threads, cache, and a tiny model end to end."""

import argparse

from .shared.common import Progress, print_result, table_text

EXAMPLE = """\
  tvm-ext doctor
  tvm-ext doctor --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb has no arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Check, print, and say how to repair what fails; 1 if any check does."""
    from ..verification.doctor import run_checks

    with Progress("checking"):
        checks = run_checks()
    good = all(check.status != "fail" for check in checks)
    values = {"ok": good, "checks": [check.as_dict() for check in checks]}
    table = table_text(("", "", ""), [(check.status, check.name, check.detail) for check in checks])
    fixes = [f"fix for {check.name}: {check.fix}" for check in checks if check.fix and check.status != "ok"]
    verdict = "everything is in place" if good else "NOT OK"
    return print_result(args, values, table, *fixes, verdict, code=0 if good else 1)
