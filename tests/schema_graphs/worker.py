"""A worker process: takes (seed, operator, whether onnxruntime is asked), answers with an outcome."""

from __future__ import annotations

from tests.onnx_backend.worker import serve

MODULE = "tests.schema_graphs.worker"
Task = tuple[int, str, bool]


def answer(task: Task) -> str:
    """The operator, and the outcome of its case."""
    from .graphs import seeded
    from .judge import outcome

    seed, operator, onnxruntime = task
    case = seeded(seed, operator)
    return f"{case.operator} {outcome(case, onnxruntime)}"


if __name__ == "__main__":
    serve(answer)
