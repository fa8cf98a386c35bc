"""Fixtures of the runtime tests."""

from pathlib import Path

import pytest

from tvm_ext.runtime.model import CompiledModel

from . import programs


@pytest.fixture(scope="package")
def bias_model() -> CompiledModel:
    """y[16, 32] = x + bias: one serial kernel, one weight."""
    return programs.add_bias()


@pytest.fixture(scope="package")
def rows_model() -> CompiledModel:
    """y[33, 257] = 2 x + scales: one parallel kernel."""
    return programs.scale_rows()


@pytest.fixture(scope="package")
def artifact(bias_model: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported bias model; not to be changed in place."""
    return programs.export(bias_model, tmp_path_factory.mktemp("artifact") / "model.so")
