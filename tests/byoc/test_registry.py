"""Back ends by name: registered ones, those of entry points, and none."""

import subprocess
import sys
from importlib import metadata

import pytest

from tests.byoc.interpreter import make
from tvm_ext.byoc import backend_named, register
from tvm_ext.core.errors import OptionError


def test_a_registered_one_is_found_and_replaced() -> None:
    first, second = make("registry_test"), make("registry_test", cost=None)
    assert register(first) is first
    assert backend_named("registry_test") is first
    register(second)
    assert backend_named("registry_test") is second
    with pytest.raises(OptionError, match="a Backend is needed"):
        register("npu")  # type: ignore[arg-type]


def test_an_unknown_one_lists_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"there is no back end .tpu.; known are: .*systolic") as caught:
        backend_named("tpu")
    assert "import the module that registers it" in caught.value.fix


def test_an_entry_point_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = metadata.EntryPoint("odd", "builtins:print", "tvm_ext.backends")
    monkeypatch.setattr(metadata, "entry_points", lambda **_: (wrong,))
    with pytest.raises(OptionError, match=r"builtins:print.* in tvm_ext\.backends"):
        backend_named("odd")


def test_importing_a_manifest_is_light() -> None:
    code = "import sys, tvm_ext.byoc; assert not {'tvm', 'onnx', 'onnxruntime'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
