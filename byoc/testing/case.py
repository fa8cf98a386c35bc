"""One case of the kit: a promise, and the action that finds out whether it is kept."""

from collections.abc import Callable
from dataclasses import dataclass


class UnexpectedError(Exception):
    """What came instead of what was promised."""


def need(kept: bool, came: str) -> None:
    """Go on if a promise is kept.

    Raises:
        UnexpectedError: it is not; says what came.
    """
    if not kept:
        raise UnexpectedError(came)


@dataclass(frozen=True, eq=False)
class Case:
    """One check of a back end.

    Attributes:
        check: what is checked.
        about: the model, pattern or situation.
        promise: what is expected.
        action: finds out; returns facts for the report, and raises if it is not so.
    """

    check: str
    about: str
    promise: str
    action: Callable[[], str]

    def run(self) -> str:
        """Check it.

        Returns:
            A few facts.

        Raises:
            AssertionError: the promise is not kept; names the check, what was expected, and what came.
        """
        try:
            return self.action()
        except UnexpectedError as error:
            came = str(error)
            cause = error.__cause__
        except Exception as error:
            came = f"{type(error).__name__}: {error}"
            cause = error
        raise AssertionError(f"{self}: expected: {self.promise}; came: {came}") from cause

    def __str__(self) -> str:
        return f"{self.check}-{self.about}"
