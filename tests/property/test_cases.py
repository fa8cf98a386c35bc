"""The generator, the judge, the table: what they promise."""

from collections import Counter

import numpy as np
import onnx
import pytest

from tests.oracles.compare import difference
from tests.oracles.float64 import float64_outputs
from tests.oracles.outcome import Outcome
from tests.oracles.pool import Judge

from .cases import seeded
from .graph import MAKERS
from .judge import SERVICE, allowed, judge, onnxruntime_of
from .repro import load, save
from .table import Table, read_table, write_table

#: What random graphs are to be about; each must turn up among a thousand.
WANTED = """
Conv ConvTranspose MaxPool AveragePool GlobalAveragePool LpPool MatMul Gemm Einsum LayerNormalization
InstanceNormalization GroupNormalization BatchNormalization LRN LpNormalization Softmax LogSoftmax Add Sub Mul Div
Max Min Pow Where Equal Less Greater And Or Not Xor Cast Round Floor ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd
ReduceL2 ReduceLogSumExp ArgMax TopK CumSum Reshape Transpose Slice Gather GatherElements GatherND ScatterElements
ScatterND Concat Split Pad Resize Tile Expand Squeeze Unsqueeze Flatten DepthToSpace SpaceToDepth Trilu OneHot Shape
ConstantOfShape QuantizeLinear DequantizeLinear QLinearMatMul MatMulInteger DynamicQuantizeLinear LSTM GRU RNN If Loop
Scan Constant
"""


@pytest.fixture(scope="module")
def thousand():
    return [seeded(seed) for seed in range(1000)]


def test_every_operator_and_every_kind_turns_up(thousand):
    operators = sum((case.operators() for case in thousand), Counter())
    assert not {*WANTED.split()} - {*operators}
    assert {case.kind for case in thousand} == {"plain", "special", "rows", "empty", "offload"}
    assert all(sum(case.operators().values()) < 50 for case in thousand)


def test_dtypes_and_odd_dimensions_turn_up(thousand):
    feeds = [x for case in thousand for x in case.feeds.values()]
    assert {x.dtype.name for x in feeds} == {
        "float32", "float16", "float64", "int64", "int32", "bool", "uint8"
    }  # fmt: skip
    sizes = {d for x in feeds for d in x.shape}
    assert {0, 1, 7, 13} <= sizes
    assert any(np.isnan(x).any() for x in feeds if x.dtype.kind == "f")


def test_a_seed_always_gives_the_same_case():
    one, other = seeded(7), seeded(7)
    assert one.model == other.model and one.options == other.options
    assert all(np.array_equal(one.feeds[k], other.feeds[k], equal_nan=True) for k in one.feeds)


def test_makers_are_many():
    assert len(MAKERS) > 80 and len({m.make.__name__ for m in MAKERS}) == len(MAKERS)


def test_onnxruntime_runs_every_graph(thousand):
    for case in thousand[:150]:
        outputs = onnx.ModelProto.FromString(case.model).graph.output
        assert len(onnxruntime_of(case)) == len(outputs) == len(case.errors)


def test_float64_agrees_with_onnxruntime(thousand):
    """The bounds on rounding hold for onnxruntime too."""
    agree = 0
    for case in [c for c in thousand if c.kind == "plain"][:60]:
        try:
            exact = float64_outputs(case.model, case.feeds).values()
        except Exception:  # of some operators ONNX's reference has no implementation, or none that works
            continue
        outputs = onnxruntime_of(case)
        agree += not difference(outputs, [*exact], allowed(case, outputs), dtypes=False)[0]
    assert agree > 40


def test_a_wrong_value_is_found(monkeypatch):
    case = seeded(1)
    assert judge(case).kind == "pass"
    import tvm_ext

    compiled = tvm_ext.compile

    def wrong(*args, **options):
        program = compiled(*args, **options)
        run = program.run
        program.run = lambda feeds: {name: np.asarray(y) + 1 for name, y in run(feeds).items()}
        return program

    monkeypatch.setattr(tvm_ext, "compile", wrong)
    assert judge(case).kind == "wrong"


def test_a_saved_case_is_the_same(tmp_path):
    case = next(c for c in map(seeded, range(100)) if c.kind == "rows")
    save(case, tmp_path)
    again = load(tmp_path)
    assert (again.model, again.errors, again.kind) == (case.model, case.errors, case.kind)
    assert all(np.array_equal(again.feeds[k], case.feeds[k]) for k in case.feeds)
    worker = Judge(SERVICE)
    assert worker(again).kind in ("pass", "refused")
    worker.close()


def test_a_table_survives_a_file_and_counts(tmp_path):
    table = Table(read_table(tmp_path / "none.json").generator, "a machine")
    for seed, kind in enumerate(["pass", "wrong", "refused", "float64", "crash"]):
        table.add(seed, Outcome(kind, "why", {"share": 0.25, "unsure": ""}))
    assert table.disagreements == 2 and table.counts["pass"] == 1
    table.add(1, Outcome("pass", "", {"share": 0.5, "unsure": ""}))
    write_table(table, tmp_path / "t.json")
    again = read_table(tmp_path / "t.json")
    assert again == table and again.disagreements == 1 and again.share == 0.5
    text = (tmp_path / "t.md").read_text()
    assert "**1 disagreements**" in text and "seed 4: crash: why" in text and "a machine" in text


def test_the_committed_table_says_that_nothing_disagrees():
    table = read_table()
    assert len(table.seeds) >= 5000 and table.disagreements == 0
