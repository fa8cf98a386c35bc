"""What SCALE-Sim 3 prints of layers whose operands come through double buffers at a bandwidth:

    python3 -m venv scalesim && scalesim/bin/pip install scalesim==3.0.0
    scalesim/bin/python benchmarks/offloading/scalesim_rows.py \\
        tests/byoc/systolic/data/scalesim_3_0_0_memory.csv

Layers are those of ResNet-18 and BERT with fewer pixels, channels and tokens, since it looks at
each address in Python. A GEMM is a convolution of one channel whose window is a row, as there.
Bandwidth is a number of words a cycle for each of the three memories, or CALC, where it finds the
one that never stalls. Sparsity is layer-wise, with weights in blocked ELLPACK.
"""

import csv
import importlib
import pathlib
import sys
import tempfile

#: Name, dataflow, array, KiB of the memories (input, filters, output), sparsity N:M, and the layer:
#: input (padded), filter, channels, filters, stride.
LAYERS = (
    ("conv1", "ws", "16x16", "2 2 2", "1:1", "61x61 7x7 3 32 2"),
    ("conv1", "os", "8x8", "1 1 1", "1:1", "37x37 7x7 3 16 2"),
    ("layer1 3x3", "ws", "16x16", "4 2 2", "1:1", "16x16 3x3 32 32 1"),
    ("layer1 3x3", "os", "16x16", "2 1 1", "1:1", "16x16 3x3 32 32 1"),
    ("layer1 3x3", "is", "16x16", "2 2 4", "1:1", "16x16 3x3 32 32 1"),
    ("layer2 3x3, stride 2", "ws", "32x32", "4 8 2", "1:1", "17x17 3x3 32 64 2"),
    ("layer2 downsample", "os", "16x16", "1 1 1", "1:1", "14x14 1x1 64 128 2"),
    ("layer3 3x3", "is", "16x8", "2 4 1", "1:1", "8x8 3x3 32 64 1"),
    ("layer3 3x3", "os", "8x16", "4 2 1", "1:1", "8x8 3x3 48 48 1"),
    ("layer4 3x3", "ws", "32x16", "1 4 1", "1:1", "5x5 3x3 64 64 1"),
    ("fc", "ws", "16x16", "1 2 1", "1:1", "1x144 1x144 1 100 1"),
    ("fc", "os", "16x16", "1 2 1", "1:1", "1x144 1x144 1 100 1"),
    ("projection", "ws", "16x16", "2 2 2", "1:1", "32x96 1x96 1 96 1"),
    ("projection", "os", "16x16", "2 2 2", "1:1", "48x96 1x96 1 96 1"),
    ("projection", "is", "8x8", "1 1 1", "1:1", "32x64 1x64 1 64 1"),
    ("scores", "os", "16x16", "1 1 1", "1:1", "64x32 1x32 1 64 1"),
    ("context", "is", "16x16", "1 1 1", "1:1", "64x64 1x64 1 32 1"),
    ("feed-forward up", "ws", "32x32", "2 4 4", "1:1", "48x64 1x64 1 256 1"),
    ("feed-forward down", "ws", "16x32", "4 2 1", "1:1", "32x256 1x256 1 64 1"),
    ("feed-forward down", "os", "4x4", "1 1 1", "1:1", "17x131 1x131 1 29 1"),
    ("layer1 3x3", "ws", "16x16", "4 2 2", "2:4", "16x16 3x3 32 32 1"),
    ("layer3 3x3", "ws", "16x8", "2 1 1", "1:4", "8x8 3x3 32 64 1"),
    ("layer4 3x3", "os", "16x16", "1 4 1", "2:4", "5x5 3x3 64 64 1"),
    ("fc", "ws", "16x16", "1 2 1", "4:8", "1x144 1x144 1 100 1"),
    ("projection", "ws", "16x16", "2 2 2", "2:4", "32x96 1x96 1 96 1"),
    ("projection", "is", "8x8", "1 1 1", "1:2", "32x64 1x64 1 64 1"),
    ("feed-forward up", "ws", "32x32", "2 4 4", "2:4", "48x64 1x64 1 256 1"),
    ("feed-forward down", "os", "4x4", "1 1 1", "3:5", "17x131 1x131 1 29 1"),
)  # fmt: skip
BANDWIDTHS = ("2", "8", "32", "CALC")
COLUMNS = (
    "layer",
    "dataflow",
    "array",
    "kib",
    "sparsity",
    "sizes",
    "bandwidth",
    "total_with_prefetch",
    "total",
    "stalls",
)
_CONFIG = """[general]
run_name = run
[architecture_presets]
ArrayHeight: {rows}
ArrayWidth: {cols}
IfmapSramSzkB: {kib[0]}
FilterSramSzkB: {kib[1]}
OfmapSramSzkB: {kib[2]}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: {bandwidth}
Dataflow: {dataflow}
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
FilterCustomLayout: False
IfmapSRAMBankBandwidth: {bandwidth}
IfmapSRAMBankNum: 1
IfmapSRAMBankPort: 2
FilterSRAMBankBandwidth: {bandwidth}
FilterSRAMBankNum: 1
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: {sparse}
SparseRep: ellpack_block
OptimizedMapping: False
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
"""


def main() -> int:
    """Writes the table to the path on the command line."""
    rows = [
        (*layer, bandwidth, *printed(layer, bandwidth))
        for layer in LAYERS
        for bandwidth in BANDWIDTHS
    ]
    with pathlib.Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return 0


def printed(layer: tuple[str, ...], bandwidth: str) -> list[str]:
    """COMPUTE_REPORT.csv's total cycles with prefetch, total cycles and stall cycles."""
    _, dataflow, array, kib, sparsity, sizes = layer
    rows, cols = array.split("x")
    number = "1" if bandwidth == "CALC" else bandwidth
    config = _CONFIG.format(
        rows=rows,
        cols=cols,
        kib=kib.split(),
        bandwidth=number,
        dataflow=dataflow,
        sparse=sparsity != "1:1",
        mode="CALC" if bandwidth == "CALC" else "USER",
    )
    numbers = sizes.replace("x", " ").split()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "config").write_text(config)
        (path / "layer.csv").write_text(
            "header\n" + ",".join(("layer", *numbers, sparsity)) + ",\n"
        )
        (path / "layout.csv").write_text("header\n")
        simulator = importlib.import_module("scalesim.scale_sim").scalesim
        files = [str(path / name) for name in ("config", "layer.csv", "layout.csv")]
        simulator(True, False, *files).run_scale(top_path=folder)
        line = (path / "run" / "COMPUTE_REPORT.csv").read_text().splitlines()[1]
    return [str(int(float(value))) for value in line.split(",")[1:4]]


if __name__ == "__main__":
    raise SystemExit(main())
