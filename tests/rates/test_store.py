"""Measured rates are kept by what they depend on; a file that holds none is measured again."""

import json
import warnings
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.rates import Rates, store

RATES = Machine.described("zen4").rates
CACHES = {"l1d": 32 << 10, "l2": 1 << 20, "l3": 32 << 20}


class Measuring:
    """Counts measurements; each gives another clock."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Rates:
        self.count += 1
        return replace(RATES, clock=float(self.count))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, which does not exist yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("TVM_EXT_CACHE", str(path))
    return path


def file_of(folder: Path) -> Path:
    return next(folder.glob("rates-*.json"))


def test_rates_are_measured_once(folder: Path) -> None:
    measure = Measuring()
    first = store.kept(2, CACHES, measure)
    assert store.kept(2, CACHES, measure) == first and measure.count == 1
    assert Rates.of(json.loads(file_of(folder).read_text())) == first
    assert [path.name for path in folder.iterdir()] == [file_of(folder).name]  # nothing temporary is left


def test_and_again_if_asked(folder: Path) -> None:
    measure = Measuring()
    store.kept(2, CACHES, measure)
    assert store.kept(2, CACHES, measure, again=True).clock == 2
    assert store.kept(2, CACHES, measure).clock == 2 and measure.count == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"rates"', "{}", '{"clock": 3}', "\x00\xff", "[" * 100_000]
)
def test_a_damaged_file_is_measured_again(folder: Path, text: str) -> None:
    measure = Measuring()
    store.kept(2, CACHES, measure)
    file_of(folder).write_bytes(text.encode("latin-1"))
    assert store.kept(2, CACHES, measure).clock == 2
    assert store.kept(2, CACHES, measure).clock == 2 and measure.count == 2


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1e999", '"3"', "1" + "0" * 400])
def test_a_file_of_wrong_numbers_is_measured_again(folder: Path, value: str) -> None:
    measure = Measuring()
    store.kept(2, CACHES, measure)
    file = file_of(folder)
    text = json.dumps({**RATES.as_dict(), "clock": 77777})
    file.write_text(text.replace("77777", value))
    assert store.kept(2, CACHES, measure).clock == 2


def test_a_folder_that_cannot_be_used_is_a_warning(folder: Path) -> None:
    folder.write_text("a file")
    measure = Measuring()
    with pytest.warns(UserWarning, match=str(folder)):
        assert store.kept(2, CACHES, measure).clock == 1
    with pytest.warns(UserWarning):
        assert store.kept(2, CACHES, measure).clock == 2


def test_a_file_that_cannot_be_replaced_is_a_warning(folder: Path) -> None:
    path = folder / f"rates-{store.key_of(2, CACHES)}.json"
    path.mkdir(parents=True)
    with pytest.warns(UserWarning, match="cannot be used"):
        assert store.kept(2, CACHES, Measuring()).clock == 1
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_a_good_folder_is_no_warning(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.kept(2, CACHES, Measuring())


def test_llvm_is_asked_for_the_cpu_once(folder: Path) -> None:
    answers = iter([("zen4", frozenset({"avx2", "fma"})), ("zen5", ["avx2"]), ("zen6", ())])

    def ask() -> tuple[str, Collection[str]]:
        return next(answers)

    assert store.name_of_cpu(ask)[0] == "zen4"
    assert store.name_of_cpu(ask) == ("zen4", ["avx2", "fma"])
    path = next(folder.glob("cpu-*.json"))
    for text in ("", "[]", '["zen4"]', '["zen4", "avx2"]', "[3, []]", '["zen4", [3]]', "[" * 100_000):
        path.write_text(text)
        answers = iter([("zen5", ["avx2"])])
        assert store.name_of_cpu(ask) == ("zen5", ["avx2"])
    path.unlink()
    path.mkdir()  # no file can be written there
    answers = iter([("zen6", ())] * 2)
    assert [store.name_of_cpu(ask)[0] for _ in range(2)] == ["zen6"] * 2


def test_the_key_is_of_all_that_rates_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [store.key_of(2, CACHES), store.key_of(3, CACHES)]
    keys += [store.key_of(2, {**CACHES, level: size + 1}) for level, size in CACHES.items()]
    keys += [store.key_of(2, CACHES, features) for features in (["avx512vnni"], ["amx-tile", "avx512vnni"])]
    with monkeypatch.context() as patch:
        patch.setattr(store, "host_identity", lambda: "another CPU")
        keys.append(store.key_of(2, CACHES))
    with monkeypatch.context() as patch:
        patch.setattr(store, "installed_versions", lambda: {"tvm-ext": "99"})
        keys.append(store.key_of(2, CACHES))
    monkeypatch.setattr(store, "_VERSION", 99)
    keys.append(store.key_of(2, CACHES))
    assert len(set(keys)) == len(keys)


def test_the_key_is_stable() -> None:
    assert store.key_of(2, CACHES) == store.key_of(2, dict(reversed(CACHES.items())))
    assert store.key_of(2, CACHES, ["a", "b"]) == store.key_of(2, CACHES, ("b", "a"))


def test_what_was_kept_of_other_instructions_is_measured_again(folder: Path) -> None:
    measure = Measuring()
    for features in ((), ("amx-tile",), (), ("amx-tile",)):
        store.kept(2, CACHES, measure, features=features)
    assert measure.count == 2
