"""A worker process: takes cases as pickles, answers each with an outcome as JSON; see `tests.onnx_backend.pool`."""

from __future__ import annotations

import json

from tests.onnx_backend.worker import serve

from .judge import judge

MODULE = "tests.property.worker"

if __name__ == "__main__":
    serve(lambda case: json.dumps(judge(case)))
