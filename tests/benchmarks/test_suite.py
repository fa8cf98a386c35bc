"""The suite's rows, models and measures, without timing anything for long."""

import numpy as np
import onnx
import pytest

from benchmarks import suite
from benchmarks.asked.measures import Outcome, of_table
from benchmarks.asked.rows import RATIO, ROWS, SuiteRow
from benchmarks.asked.settings import Settings
from benchmarks.common.rows import Unavailable
from benchmarks.models.models import MODELS
from tests.frontend.graphs import run_onnxruntime
from tvm_ext.benchmarking.table import BenchmarkRow, BenchmarkTable
from tvm_ext.core.sample_inputs import seeded_inputs


def test_rows_have_keys_of_their_own_and_models():
    keys = [row.key for row in ROWS]
    assert len(set(keys)) == len(keys)
    assert {row.key for row in ROWS if row.figure == RATIO} <= MODELS.keys()


def test_patterns_choose_rows_in_order():
    assert suite.chosen([]) == list(ROWS)
    assert [r.key for r in suite.chosen(["mlp*", "resnet18"])] == ["resnet18", "mlp", "mlp-b64"]
    with pytest.raises(ValueError, match="vgg"):
        suite.chosen(["resnet18", "vgg"])


OPERATORS = [k for k in MODELS if k.startswith(("matmul", "batch", "conv", "dense-1x1024"))]


@pytest.mark.parametrize("key", OPERATORS)
def test_operators_are_what_they_are_called(tmp_path, key):
    proto = onnx.load(MODELS[key].write(tmp_path))
    onnx.checker.check_model(proto, full_check=True)
    (node,) = proto.graph.node
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in proto.graph.input]
    x = seeded(proto)
    (result,) = run_onnxruntime(proto, x)
    if node.op_type == "MatMul":
        weights = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer]
        a, b = [*x.values(), *weights]
        np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
    else:
        assert list(result.shape) == shapes[0] and str(shapes[0][-1]) == key.rpartition("-")[2]


def seeded(proto):
    from tvm_ext.frontend.reading.shapes import input_specs

    return seeded_inputs(input_specs(proto.graph, {}, "m"))


def test_inputs_of_trained_models_fit_their_shapes():
    for key in ("open-nsfw", "pp-ocr-rec", "minilm"):
        inputs, others = (MODELS[key].draw(seed) for seed in (0, 1))
        assert {name: array.shape for name, array in inputs.items()} == MODELS[key].shapes
        assert any((inputs[name] != others[name]).any() for name in inputs)
    ids = MODELS["minilm"].draw(0)["input_ids"]
    assert ids.dtype == np.int64 and ids.min() >= 0 and ids.max() < 30522 and len(np.unique(ids)) > 50


def test_what_a_model_does_not_draw_is_drawn_by_seed(tmp_path):
    model = MODELS["matmul-512-inputs"]
    first, again, other = (model.inputs(tmp_path, seed) for seed in (3, 3, 4))
    assert {name: array.shape for name, array in first.items()} == {"a": (512, 512), "b": (512, 512)}
    assert (first["a"] == again["a"]).all() and (first["a"] != other["a"]).any()


def test_a_row_that_fails_is_an_outcome(tmp_path, capsys):
    def unavailable(settings):
        raise Unavailable("no network")

    def broken(settings):
        raise ZeroDivisionError("division by zero")

    outcomes = [suite.measured(SuiteRow("k", "t", 1.0, f), Settings(tmp_path), "1 of 2") for f in (unavailable, broken)]
    assert [o.why for o in outcomes] == ["not available: no network", "failed: ZeroDivisionError: division by zero"]
    out, err = capsys.readouterr()
    assert out == "" and "[1 of 2] k" in err


def test_a_missed_bar_is_profiled_then_and_there(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(suite.measures, "reason", lambda key, settings: asked.append(key) or "memory-bound")
    rows = [SuiteRow(key, "t", 1.0, lambda s, v=v: Outcome(v), model=m) for key, v, m in
            (("slow", 1.5, "mlp"), ("fast", 0.5, "mlp"), ("large", 1.5, ""), ("none", None, "mlp"))]  # fmt: skip
    outcomes = [suite.measured(row, Settings(tmp_path), "") for row in rows]
    assert [outcome.reason for outcome in outcomes] == ["memory-bound", "", "", ""] and asked == ["mlp"]
    assert {row.model for row in ROWS} - {""} <= MODELS.keys()


OURS = BenchmarkRow("tvm_ext", "tvm-ext 1", ((0.001,), (0.002,), (0.003,)), 1e-7)
THEIRS = BenchmarkRow("onnxruntime", "ort", ((0.004,), (0.004,), (0.004,)), 0.0)
PEER = BenchmarkRow("openvino", "ov", ((0.002,), (0.004,), (0.006,)), 0.0)


def race_of(*rows):
    return of_table(BenchmarkTable("m", {}, 2, rows), [row.name for row in rows[2:]])


def test_the_figure_of_a_race():
    outcome = race_of(OURS, THEIRS, PEER, BenchmarkRow("torch", reason="torch is not installed"))
    assert outcome.value == 0.5 and outcome.spread == (0.25, 0.75) and outcome.of_range == 1e-7
    assert outcome.peers == {"openvino": 1.0, "torch": "torch is not installed"} and outcome.text == "1 / 4 ms"


def test_outputs_that_disagree_have_no_time():
    outcome = race_of(BenchmarkRow("tvm_ext", of_range=0.5, reason="outputs disagree: y"), THEIRS)
    assert outcome.value is None and "outputs disagree" in outcome.why and outcome.of_range == 0.5


@pytest.fixture
def fake_rows(monkeypatch):
    rows = (
        SuiteRow("good", "Good", 1.0, lambda s: Outcome(0.5, details={"threads": s.threads})),
        SuiteRow("bad", "Bad", 1.0, lambda s: Outcome(1.5)),
    )
    monkeypatch.setattr(suite, "ROWS", rows)
    written = []
    monkeypatch.setattr(suite.suite_page, "write", lambda *args: written.append(args))
    monkeypatch.setattr(suite.machines, "write", lambda: "README.md")
    monkeypatch.setattr(suite.measures, "roofs", lambda threads: {"threads": threads})
    return written


def test_a_whole_run_writes_and_tells_missed_bars(fake_rows, capsys):
    assert suite.main(["--threads", "1"]) == 1
    ((document, folder),) = fake_rows
    assert [row["value"] for row in document["rows"]] == [0.5, 1.5] and document["threads"] == 1
    assert document["machine"]["roofs"] == {"threads": 1} and folder.name == document["machine"]["name"]
    assert "| Good | 0.500 |" in capsys.readouterr().out


def test_a_part_of_a_run_writes_nothing(fake_rows, capsys):
    assert suite.main(["--only", "good"]) == 0 and suite.main(["--quick"]) == 1
    assert fake_rows == [] and "| Bad | 1.500 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--only", "vgg"], "no such row"),
        (["--peers", "openvino,tensorrt"], "tensorrt"),
        (["--python", "/a", "--python", "/b"], "one path for all"),
    ],
)
def test_wrong_usage_exits_2(argv, message, capsys):
    with pytest.raises(SystemExit) as exit:
        suite.main(argv)
    assert exit.value.code == 2 and message in capsys.readouterr().err
