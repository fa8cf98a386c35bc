"""A worker process: takes (contender, name of a model) from its pipe, answers each with a row as a line of JSON."""

from __future__ import annotations

import json

from ..onnx_backend.contenders import Refused
from ..onnx_backend.worker import serve
from .contenders import CONTENDERS, Row
from .models import MODELS, Unavailable

#: Characters of a reason in the table.
_LONGEST = 200


def row_of(contender: str, name: str) -> Row:
    """The row; a model that cannot be had, is refused or fails has an outcome and nothing else."""
    try:
        return CONTENDERS[contender](MODELS[name])
    except Unavailable as error:
        return {"outcome": f"not tested: download failed: {error}"}
    except Refused as refused:
        return {"outcome": f"refused: {_short(refused)}"}
    except Exception as error:
        return {"outcome": f"failed: {type(error).__name__}: {_short(error)}"}


def _short(error: Exception) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(next((line for line in lines if line), "").split())[:_LONGEST]


if __name__ == "__main__":
    serve(lambda task: json.dumps(row_of(*task)))
