"""`tvm-ext scalesim`: topology files against what SCALE-Sim printed of them, models, and what it refuses."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.byoc.systolic.cases import scalesim_memory_rows
from tvm_ext.byoc.systolic.results.scale_sim_report import SCALE_SIM_COLUMNS

SMALL = ("--memory", "input_bytes=2048", "--memory", "filter_bytes=2048", "--memory", "output_bytes=2048")
HEAD = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides, Sparsity,\n"


def test_a_topology_is_counted_as_printed(cli: Any, tmp_path: Path) -> None:
    setting = {"dataflow": "ws", "array": "16x16", "kib": "2 2 2", "bandwidth": "8"}
    rows = [row for row in scalesim_memory_rows() if setting.items() <= row.items()]
    lines = [",".join((row["layer"], *row["sizes"].replace("x", " ").split(), row["sparsity"])) for row in rows]
    path = tmp_path / "topology.csv"
    path.write_text(HEAD + ",\n\n".join(lines) + ",\n")
    code, out, _ = cli("scalesim", str(path), *SMALL, "--memory", "words_per_cycle=8")
    printed = [[row[name] for name in ("total_with_prefetch", "total", "stalls")] for row in rows]
    assert code == 0 and len(rows) == 3 and [line.split(",")[1:4] for line in out.splitlines()[1:]] == printed


def test_a_gemm_is_the_convolution_with_one_row_of_filter(cli_json: Any, tmp_path: Path) -> None:
    (row,) = (
        row for row in scalesim_memory_rows()
        if row["sizes"] == "48x96 1x96 1 96 1" and row["bandwidth"] == "CALC" and row["dataflow"] == "os"
    )  # fmt: skip
    path = tmp_path / "gemm.csv"
    path.write_text("Layer,M,N,K,\nprojection,48,96,96,\n")
    code, document = cli_json("scalesim", str(path), *SMALL, "--offload-option", "dataflow=os")
    (layer,) = document["layers"]
    assert code == 0 and [layer[name] for name in SCALE_SIM_COLUMNS[1:4]] == [
        int(row[name]) for name in ("total_with_prefetch", "total", "stalls")
    ]


def test_layers_of_a_model(cli: Any, cli_json: Any, tmp_path: Path) -> None:
    graph = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[4, 8] x, float[8, 4] w) => '
                                    "(float[4, 4] y) {y = MatMul(x, w)}")  # fmt: skip
    model, topology = tmp_path / "model.onnx", tmp_path / "topology.csv"
    onnx.save(graph, model)
    topology.write_text("head\nMatMul, 4, 4, 8, 2:4,\n")
    array = ("--offload-option", "rows=4", "--offload-option", "cols=2", "--offload-option", "dataflow=is")
    code, document = cli_json("scalesim", str(model), "--sparsity", "2:4", *array)
    assert code == 0 and document == cli_json("scalesim", str(topology), *array)[1]
    for wrong in (("--sparsity", "2"), ("--sparsity", "3:2"), ("--memory", "x=1"), ("--offload", "onnxruntime")):
        assert cli("scalesim", str(model), *wrong)[0] == 2


@pytest.mark.parametrize(
    "line",
    ["a, 1, 2,", "a, 0, 2, 3,", "a, 1, 2, x,", "a, 3, 3, 4, 3, 1, 1, 1,", "a, 99999, 9, 99999,", "a, 9, 9, 9, 1:2:3"],
)
def test_what_is_no_topology(cli: Any, tmp_path: Path, line: str) -> None:
    path = tmp_path / "topology.csv"
    path.write_text(f"head\n{line}\n")
    assert cli("scalesim", str(path))[0] == 2
    assert cli("scalesim", str(tmp_path / "none.csv"))[0] == 2


def test_it_counts_one_array(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.csv"
    path.write_text("head\na, 4, 4, 4,\n")
    assert cli("scalesim", str(path), "--offload-option", "arrays=1")[0] == 0
    assert cli("scalesim", str(path), "--offload-option", "arrays=2")[0] == 2
