"""Questions to a machine: which are asked within a budget, what is skipped and says so, the pages; nothing is timed."""

import json
import pathlib
import time

import onnx
import pytest

from benchmarks import questions
from benchmarks.asked import chains
from benchmarks.asked import questions as asked_questions
from benchmarks.asked.chains import Chain
from benchmarks.asked.questions import Question
from benchmarks.asked.settings import Settings
from benchmarks.common.rows import Row, Unavailable
from benchmarks.pages.answers import Answer

SETTINGS = Settings(pathlib.Path(), 2)


@pytest.fixture
def page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> questions.Page:
    monkeypatch.setattr(questions.measures, "roofs", lambda threads: {"threads": threads})
    return questions.Page(tmp_path, 5.0, 2)


def question(key: str, seconds: float = 0.0, kind: str = "", model: str = "") -> Question:
    """A question that moves the clock on."""

    def ask(settings: Settings) -> Answer:
        CLOCK[0] += seconds
        return Answer([Row(key, "1 or less", "0.5", True)])

    return Question(key, key, ask, model, kind)


CLOCK = [0.0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    CLOCK[0] = 0.0
    monkeypatch.setattr(questions.time, "monotonic", lambda: CLOCK[0])


def skipped(answers: dict[str, Answer]) -> list[str]:
    return [key for key, answer in answers.items() if answer.rows[0].measured.startswith("skipped")]


@pytest.mark.usefixtures("clock")
def test_a_question_begins_only_while_its_kind_has_time(page: questions.Page) -> None:
    asked = [
        question("a", 6, "slow"),
        question("b", 6, "slow"),
        question("c", 1, "fast"),
        question("d", 9),
        question("e"),
    ]
    answers = questions.answered(asked, {}, SETTINGS, 10.0, page)
    assert list(answers) == list("abcde") and skipped(answers) == ["b", "e"]
    assert answers["b"].rows[0].met is None


def test_a_model_without_its_file_is_left_out_with_a_line(page: questions.Page) -> None:
    answers = questions.answered([question("a", model="m"), question("b")], {"m": "no network"}, SETTINGS,
                                 time.monotonic() + 60, page)  # fmt: skip
    assert answers["a"].rows[0].measured == "skipped: no network" and answers["b"].rows[0].met


def test_what_fails_is_an_answer_and_the_others_go_on(page: questions.Page) -> None:
    def broken(settings: Settings) -> Answer:
        raise ZeroDivisionError("division by zero")

    def unavailable(settings: Settings) -> Answer:
        raise Unavailable("no OpenVINO")

    explained: list[str] = []
    last = Question("c", "c", lambda _: Answer([Row("c", "1", "2", False)], explain=lambda: explained.append("c")))
    asked = [Question("a", "a", broken), Question("b", "b", unavailable), last]
    answers = questions.answered(asked, {}, SETTINGS, time.monotonic() + 60, page)
    assert [answer.rows[0].met for answer in answers.values()] == [False, None, False] and explained == ["c"]
    assert "ZeroDivisionError: division by zero" in answers["a"].rows[0].measured


def test_the_pages_hold_rows_reasons_and_notes(page: questions.Page) -> None:
    row = Row("slow", "1 or less", "2", False, {"reason": "memory-bound"})
    page.write({"a": Answer([row], ["## Layers"], {"x": 1})})
    document = json.loads((page.folder / "questions.json").read_text())
    assert document["rows"][0]["what"] == "slow" and document["machine"]["roofs"] == {"threads": 2}
    assert document["details"] == {"a": {"x": 1}}
    text = (page.folder / "questions.md").read_text()
    assert "| slow | 1 or less | 2 | NO |" in text and "* slow: memory-bound" in text and "## Layers" in text


def test_questions_have_keys_of_their_own_and_know_their_models() -> None:
    asked = questions.questions()
    assert len({each.key for each in asked}) == len(asked)
    assert {each.model for each in asked} - {""} <= questions.MODELS.keys()


def test_files_that_cannot_be_had_are_known_before_the_clock_starts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(folder: pathlib.Path) -> pathlib.Path:
        raise Unavailable("no matching distribution")

    monkeypatch.setitem(questions.MODELS, "minilm", questions.MODELS["minilm"].__class__("t", missing, dict))
    assert questions.lacking({"minilm"}, tmp_path) == {"minilm": "no matching distribution"}


def test_without_openvino_its_bars_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, count in (("", 2), ("/usr/bin/python3", 0)):
        monkeypatch.setattr(asked_questions.openvino, "installed", lambda there=there: there)
        ask = asked_questions._narrow("minilm", 0.85, 0.85).ask
        assert len(ask.keywords["left_out"]) == count  # type: ignore[attr-defined]


def test_a_chain_is_what_it_is_called(tmp_path: pathlib.Path) -> None:
    proto = onnx.load(Chain(3, 4, 7).model().write(tmp_path))
    onnx.checker.check_model(proto, full_check=True)
    weights = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer]
    assert [w.shape for w in weights] == [(4, 4, 3, 3)] * 3 and (weights[0] != weights[1]).any()
    assert [n.op_type for n in proto.graph.node] == ["Conv", "Relu"] * 3


#: In 1 ms 20 MB of a read of 40 GB/s and 90 GFLOP/s of 100.
FOUND = {
    "rounds": [[1e-3, 0.5e-3, 1e-3]] * 3, "bytes": 20_000_000, "read_bytes": 20_000_000, "executed": 9e7,
    "operations": 1e8, "ok": True, "recipes": ["conv2d_nchwc"],
}  # fmt: skip


def test_a_chain_is_judged_by_its_nearer_roof() -> None:
    chain = Chain(8, 512, 7)
    row = chains.row_of(chain, "f32", dict(FOUND))
    assert row.met and row.details["value"] == pytest.approx(0.9) and "20.0 / 40.0 GB/s" in row.measured
    assert not chains.row_of(chain, "f32", {**FOUND, "executed": 8e7}).met
    assert chains.row_of(chain, "f32", {**FOUND, "ok": False}).measured == "outputs disagree"
    told = chains.row_of(chain, "bf16", dict(FOUND))
    assert told.met is None and told.details["value"] == pytest.approx(0.5) and "GFLOP" not in told.measured
