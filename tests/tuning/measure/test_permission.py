"""The kernel that asks for tiles gets the answer that this process gets."""

from pathlib import Path

import tvm

from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import compile_kernels
from tvm_ext.runtime import tiles
from tvm_ext.tuning.measure.remote import ASK, asking_kernel, request_of


def test_linux_answers_a_kernel_as_it_answers_python(tmp_path: Path) -> None:
    library = str(tmp_path / "ask.so")
    compile_kernels({ASK: asking_kernel()}, Machine.detect(None, 1)).export_library(library)
    assert request_of(tvm.runtime.load_module(library), tvm.cpu())() == tiles.request()
