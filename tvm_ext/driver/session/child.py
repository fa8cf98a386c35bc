"""A process that compiles one model for the session that started it: it reads jobs, and writes artifacts."""

import os
import pickle
import sys
from typing import BinaryIO

from ...core.errors import TvmExtError
from ..compile import compile_model

#: Steps that its priority is lower by: it takes the cores that calls leave.
_NICENESS = 10


def main(jobs: BinaryIO) -> None:
    """Compile until there are no more jobs, and answer each on stdout: None, or (class, message, fix) of the error.

    Args:
        jobs: pickles are read from it: the model, then (options, path of the artifact to write) of each job.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    os.nice(_NICENESS)
    model = pickle.load(jobs)
    while True:
        try:
            options, path = pickle.load(jobs)
        except EOFError:
            return
        answer = None
        try:
            compile_model(model, options).export(path)
        except TvmExtError as error:
            answer = (type(error).__name__, error.message, error.fix)
        pickle.dump(answer, answers)
        answers.flush()
