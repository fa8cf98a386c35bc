"""Notebooks run with a small budget, and are committed tidy, with the outputs of a real one."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import _execute
import numpy as np
import pytest

from tests import onnx_graphs as graphs

NAMES = _execute.names()
#: Paths of one machine; a notebook runs in its own folder and needs none.
ABSOLUTE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|usr|opt|var|mnt|Users)/\S+")
PEERS = pathlib.Path(_execute.FOLDER) / "_peers.py"


def texts(output: Any) -> Iterator[str]:
    """What a reader sees of an output, pictures left out."""
    yield output.get("text", "")
    yield from output.get("traceback", ())
    yield from (value for kind, value in output.get("data", {}).items() if kind.startswith("text/"))


def code_cells(name: str) -> list[Any]:
    return [cell for cell in _execute.read(name).cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    known = {
        "write_a_template", "tuned_vs_untuned_resnet18", "bring_your_own_accelerator", "follow_a_matmul",
        "quantize_resnet", "small_language_model",
    }  # fmt: skip
    assert known <= set(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_runs_with_the_small_budget(name: str, tmp_path: pathlib.Path) -> None:
    notebook = _execute.execute(name, tmp_path, small=True)  # a cell that fails raises
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_is_committed_tidy(name: str) -> None:
    assert _execute.read(name) == _execute.tidy(_execute.read(name))


@pytest.mark.parametrize("name", NAMES)
def test_is_committed_with_the_outputs_of_one_run_with_the_real_budget(name: str) -> None:
    """Else: python notebooks/_execute.py"""
    cells = code_cells(name)
    assert "real budget" in "".join(text for output in cells[0].outputs for text in texts(output))
    assert [cell.execution_count for cell in cells] == list(range(1, 1 + len(cells)))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


@pytest.mark.parametrize("name", NAMES)
def test_names_no_path_of_a_machine(name: str) -> None:
    for cell in _execute.read(name).cells:
        seen = [cell.source, *(text for output in cell.get("outputs", ()) for text in texts(output))]
        assert not ABSOLUTE.findall("\n".join(seen)), cell.id


@pytest.mark.parametrize("name", NAMES)
def test_the_first_cell_reads_the_budget(name: str) -> None:
    first = code_cells(name)[0].source
    assert _execute.BUDGET in first
    assert any(isinstance(node, ast.Assign) and node.targets[0].id == "SMALL" for node in ast.parse(first).body)


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
def test_peers_name_convolutions_by_their_nodes(runtime: str, tmp_path: pathlib.Path) -> None:
    weights = {"w": graphs.random(16, 16, 3, 3), "v": graphs.random(16, 16, 1, 1)}
    nodes = [
        graphs.node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]), graphs.node("Relu", "a", "b"),
        graphs.node("Conv", "b v", "c", "second"),
    ]  # fmt: skip
    shape = [1, 16, 8, 8]
    model = graphs.model(nodes, [graphs.value("x", shape)], [graphs.value("c", shape)], weights)
    path = tmp_path / "two.onnx"
    path.write_bytes(model.SerializeToString())
    done = subprocess.run(
        [sys.executable, str(PEERS), runtime, str(path), "1"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "TVM_NUM_THREADS": "1"}, timeout=200,
    )  # fmt: skip
    seconds = json.loads(done.stdout)
    assert len(seconds) >= 2 and all(np.isfinite(taken) and taken > 0 for taken in seconds.values())
    known = {"first", "second"} if runtime == "tvm" else {"first", "second", "relu_b"}  # fused: named by its output
    assert set(seconds) <= known and "second" in seconds
