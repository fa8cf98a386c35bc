"""Instruments: the watch sees every step, switches leave passes out, the cache is left alone."""

from tvm_ext.core.instruments import Instruments, Switches
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.compile import compile_model
from tvm_ext.driver.programs import lower
from tvm_ext.frontend import zoo


def small() -> object:
    return zoo.mlp(inputs=8, hidden=(6,), classes=4)


def test_nothing_is_the_default():
    assert not Instruments()
    assert Instruments(switches=Switches(passes=frozenset({"fold-affine"})))
    assert Instruments(watch=lambda *_: None)


def test_the_watch_sees_the_import_and_every_pass_in_order():
    seen = []
    instruments = Instruments(watch=lambda step, mod, ctx: seen.append((step, len(ctx.reports))))
    lowered = lower(small(), CompileOptions(), Machine.detect(None, 1), instruments=instruments)
    assert [step for step, _ in seen] == ["import", *(report.name for report in lowered.ctx.reports)]
    assert [count for _, count in seen] == list(range(len(seen)))


def test_a_pass_that_is_off_does_not_run():
    off = Instruments(switches=Switches(passes=frozenset({"fold-constants"})))
    lowered = lower(small(), CompileOptions(), Machine.detect(None, 1), instruments=off)
    names = [report.name for report in lowered.ctx.reports]
    assert "fold-constants" not in names
    assert "fold-affine" in names


def test_a_compile_with_instruments_leaves_the_cache_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    compile_model(small(), CompileOptions(threads=1), Instruments(watch=lambda *_: None))
    assert not list(tmp_path.rglob("*"))
