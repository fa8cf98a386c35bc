"""Tables and pictures of bring_your_own_accelerator.ipynb, and the model of int8 that it runs."""

import logging

import numpy as np

COLOURS = {
    "LOAD": "#8fb8de", "LOAD.WINDOWS": "#2f6fdb", "LOAD.CONST": "#1a9e77", "GEMM": "#d9772b", "REDUCE": "#a0522d",
    "VECTOR": "#e0b400",
    "STORE": "#8250df",
}  # fmt: skip


def print_layers(rows):
    """Layers with what was chosen for them, and what came of it."""
    print(
        f"{'layer':24}{'m x k x n':>18} flow  {'tile':>15}{'cycles':>11}{'array':>7}{'DRAM MB':>9}{'mJ':>6}  bound by"
    )
    for row in rows:
        facts = row.facts
        sizes, tile = (" x ".join(map(str, part)) for part in ((facts["m"], facts["k"], facts["n"]), facts["tile"]))
        energy = sum(row.energy.values()) / 1e9
        print(
            f"{row.name:24}{sizes:>18} {facts['dataflow']:6}{tile:>15}{row.cycles:11,}{row.utilization:7.0%}"
            f"{row.dram_bytes / 1e6:9.2f}{energy:6.2f}  {row.bound}"
        )


def draw_timeline(axis, timing, begin, end):
    """The three queues between two cycles: a bar an instruction; what is white is waiting."""
    queues = ("store", "compute", "load")  # from below
    for event in timing.events:
        if event.queue in queues and event.end > begin and event.start < end:
            kind = timing.program.instructions[event.index].mnemonic
            place = queues.index(event.queue)
            start, stop = max(event.start, begin), min(event.end, end)
            axis.broken_barh([(start, stop - start)], (place - 0.35, 0.7), facecolors=COLOURS[kind], edgecolor="white",
                             linewidth=0.4)  # fmt: skip
    axis.set(yticks=range(3), yticklabels=queues, xlim=(begin, end), ylim=(-0.6, 2.6))


def add_legend(figure):
    """What the colours of timelines mean, above them."""
    from matplotlib.patches import Patch

    marks = [Patch(facecolor=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=marks, loc="upper center", ncols=len(marks), frameon=False, fontsize="small")


def spans(timing):
    """Layer -> its first and last cycle."""
    return {layer.name: timing.layer_cycles(layer) for layer in timing.program.layers}


def draw_energy(axis, labels, energies):
    """Stacked bars, a bar a setting, of energies by level in millijoules."""
    left = np.zeros(len(labels))
    for level, colour in zip(("array", "vector", "scratchpad", "accumulator", "dram"),
                             ("#2f6fdb", "#8250df", "#1a9e77", "#e0b400", "#d9772b"), strict=True):  # fmt: skip
        values = np.array([energy.get(level, 0.0) / 1e9 for energy in energies])
        axis.barh(labels, values, left=left, color=colour, label=level)
        left += values
    axis.invert_yaxis()
    axis.set_xlabel("mJ an image")
    axis.legend(fontsize="small")


def quantize(source, destination, images):
    """An int8 model with QuantizeLinear and DequantizeLinear, a scale a channel for weights, by onnxruntime's tools.

    Args:
        source, destination: files.
        images: float32 arrays, which show how large values become.
    """
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self._left = [{"input": image} for image in images]

        def get_next(self):
            return self._left.pop() if self._left else None

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # folds batch norms
    options.optimized_model_filepath, options.log_severity_level = f"{destination}.folded.onnx", 3
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    logging.disable(logging.WARNING)  # it recommends what was just done
    quantize_static(
        options.optimized_model_filepath, destination, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    logging.disable(logging.NOTSET)


def onnxruntime_output(path, inputs, optimized=False):
    """The first output that onnxruntime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
