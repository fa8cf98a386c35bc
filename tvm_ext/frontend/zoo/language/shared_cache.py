"""The caches of a language model: their dtypes, and pages that several sequences share."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.errors import OptionError, check_whole
from ....runtime.language.options import CACHES
from ..parameters import check_sizes

#: Tokens of a page: whole vectors of keys, and half of it is what a sequence wastes.
PAGE = 32


@dataclass(frozen=True)
class Pages:
    """A cache that several sequences share.

    Attributes:
        sequences: that there may be at once.
        count: pages.
        rows: tokens of a page.
        each: pages that a sequence may have.
    """

    sequences: int
    count: int
    rows: int
    each: int

    @classmethod
    def of(cls, sequences: int, pages: int, capacity: int) -> Pages | None:
        """So many pages, or enough for all sequences if these are 0; None if there are no sequences.

        Raises:
            OptionError: numbers below 0, or fewer pages than a sequence of `capacity` tokens needs.
        """
        sequences, pages = check_whole("sequences", sequences), check_whole("pages", pages)
        each = -(-capacity // PAGE)
        if not sequences:
            if pages:
                raise OptionError(f"pages={pages} of a model of one sequence", fix="sequences=8")
            return None
        if pages and pages <= each:
            wrong = f"pages={pages}: {capacity} tokens need {each}, and padding another one"
            raise OptionError(wrong, fix="a smaller capacity=, or more pages")
        return cls(sequences, pages or sequences * each + 1, PAGE, each)


def check_cache(cache: str) -> None:
    """Raise an OptionError for a type that caches cannot hold."""
    if cache not in CACHES:
        raise OptionError(f"cache={cache!r}: {' or '.join(CACHES)}", fix="cache='float16'")


def check_arguments(capacity: int, cache: str, sequences: int, pages: int) -> None:
    """See what of a model's arguments is wrong whatever its file says.

    Raises:
        OptionError: `capacity` is below 1, there is no such `cache`, or pages of one sequence.
    """
    check_sizes(capacity=capacity)
    check_cache(cache)
    Pages.of(sequences, 0 if sequences else pages, capacity)
