"""Planted bugs: bisect names each of them exactly, by its kind and with every kind tried in turn."""

from pathlib import Path

import pytest

from tvm_ext.verification.bisect import bisect

from .planted import BUGS, Bug

LONG = pytest.mark.long


def check(bug: Bug, by: str | None, patch: pytest.MonkeyPatch, folder: Path) -> None:
    proto, options, culprit = bug.prepared(folder)
    bug.plant(patch)
    bisection = bisect(proto, by, **options)
    assert [culprit.name for culprit in bisection.culprits] == [culprit] and bisection.culprits[0].kind == bug.kind, (
        str(bisection)
    )
    assert bisection.findings[-1].also == ()
    if by is None and bug.layer:
        assert [culprit.name for culprit in bisection.findings[-1].culprits] == [bug.layer]


@LONG
@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.name)
def test_by_its_kind(bug: Bug, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check(bug, bug.kind, monkeypatch, tmp_path)


@LONG
@pytest.mark.parametrize("name", ["shift", "packing", "record"])
def test_by_every_kind_in_turn(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check(BUGS[name], None, monkeypatch, tmp_path)


@LONG
def test_nothing_is_wrong_without_a_bug(tmp_path: Path) -> None:
    for bug in list(BUGS.values())[::4]:
        proto, options, _ = bug.prepared(tmp_path)
        assert bisect(proto, **options).ok, bug.name


def test_there_are_enough_of_each_kind() -> None:
    kinds = [bug.kind for bug in BUGS.values()]
    assert len(BUGS) >= 12
    assert kinds.count("pass") >= 3 and kinds.count("recipe") >= 3
    assert kinds.count("record") >= 2 and kinds.count("offload") >= 2
