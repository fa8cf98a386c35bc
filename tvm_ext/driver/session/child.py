"""A process that compiles one model for the session that started it: it reads the job, and writes the artifact."""

from __future__ import annotations

import os
import pickle
import sys
from typing import BinaryIO

from ...core.errors import TvmExtError
from ..compile import compile_model

#: Steps that its priority is lower by: it takes the cores that calls leave.
_NICENESS = 10


def main(jobs: BinaryIO) -> None:
    """Compile what the parent sent, and answer on stdout: None, or (class, message, fix) of the error.

    Args:
        jobs: where a pickle of (model, options, path of the artifact to write) is read from.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    os.nice(_NICENESS)
    model, options, path = pickle.load(jobs)
    answer = None
    try:
        compile_model(model, options).export(path)
    except TvmExtError as error:
        answer = (type(error).__name__, error.message, error.fix)
    with answers:
        pickle.dump(answer, answers)
