"""Rows of logs: some of our own, and some as AutoTVM 0.2 writes them."""

from pathlib import Path
from typing import Any

from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import Verdict
from tvm_ext.core.records.task_key import TaskKey

CONV = TaskKey.of(
    "relax.nn.conv2d",
    [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32", "constant"],
     ["relax.nn.conv2d", ["p0", "p1"], {"strides": [2, 2], "groups": 1}], ["relax.nn.relu", ["v0"], {}]],
)  # fmt: skip
MACHINE = {"isa": "avx512", "mcpu": "znver4", "lanes": 16, "threads": 2, "l1d": 32768, "l2": 1 << 20, "l3": 1 << 25}


def record(task: TaskKey = CONV, recipe: str = "conv2d_nchwc", version: int = 1, **changes: Any) -> Record:
    """A good one, but for the changes."""
    fields: dict[str, Any] = {
        "config": {"tile_o": 2, "tile_p": 7, "order": ["a", "b"]}, "costs": (1.5e-4, 1.25e-4, 2e-4), "check": 1e-7,
        "machine": MACHINE, "session": "s1", "timestamp": 1764300000.25, "seconds": 0.5, "kinds": {"order": "re"},
        "index": 7,
    }  # fmt: skip
    return Record(task, recipe, version, **{**fields, **changes})


def written(path: Path, *rows: Record | Verdict | str) -> Path:
    """A log of records, verdicts and lines as they are."""
    texts = [
        row if isinstance(row, str) else (row.to_line if isinstance(row, Verdict) else row.to_row)() for row in rows
    ]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


#: As AutoTVM's tutorials and TopHub have them: a template of its own library, one of a tutorial, one that failed.
AUTOTVM = (
    '{"input": ["llvm -keys=cpu -mcpu=skylake-avx512", "conv2d_NCHWc.x86", [["TENSOR", [1, 3, 224, 224], '
    '"float32"], ["TENSOR", [64, 3, 7, 7], "float32"], [2, 2], [3, 3, 3, 3], [1, 1], "NCHW", "NCHW", "float32"], {}], '
    '"config": {"index": 163, "code_hash": null, "entity": [["tile_ic", "sp", [-1, 3]], ["tile_oc", "sp", [-1, 32]], '
    '["tile_ow", "sp", [-1, 14]], ["unroll_kw", "ot", false]]}, "result": [[0.00071, 0.00073, 0.00072], 0, '
    '1.2345, 1593458012.1], "version": 0.2, "tvm_version": "0.7.dev1"}',
    '{"input": ["llvm -keys=cpu", "tutorial/matmul", [512, 512, 512, "float32"], {}], "config": {"index": 45, '
    '"code_hash": null, "entity": [["tile_y", "sp", [-1, 8]], ["tile_x", "sp", [-1, 128]]]}, '
    '"result": [[0.0312], 0, 0.55, 1606960862.7], "version": 0.2, "tvm_version": "0.8.0"}',
    '{"input": ["cuda -keys=cuda,gpu -model=unknown", "tutorial/conv2d_no_batching", [1, 7, 7, 512, 512, 3, 3, [1, 1], '
    '[1, 1]], {}], "config": {"index": 9, "code_hash": "0a1b", "entity": [["reorder_0", "re", [0, 2, 1]], '
    '["ann", "an", ["unroll", "none"]]]}, "result": [[1000000000.0], 6, 10.2, 1606960870.1], "version": 0.2, '
    '"tvm_version": "0.8.0"}',
)

#: The pickled protocol: target, then base64 of pickles, with tabs between.
PICKLED = "llvm\tgASVIwAAAAAAAACMBXBvc2l4lIwGc3lzdGVt\tgASVCwAAAA==\tgASVCwAAAA==\t0.2\t0.6.0"
