"""Pages of a cache that sequences share: who has which, and what stands in those that nobody has.

A full page is known by all tokens up to its last one. Sequences with a common beginning have its pages together; a page
that nobody has any more keeps its rows until another one is needed, the longest unused first.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention" (2023).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np


class PagePool:
    """Pages 0 to `count` - 1, of `rows` tokens each."""

    def __init__(self, count: int, rows: int) -> None:
        self._rows = rows
        self._users = [0] * count
        #: Pages without users, the longest unused first.
        self._unused: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._page_of: dict[bytes, int] = {}
        self._text_of: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """Pages without users."""
        return len(self._unused)

    def shared(self, tokens: Sequence[int]) -> list[int]:
        """The pages that hold a beginning of some tokens, as long as there is, without the last token."""
        pages = []
        for text in self._texts(tokens[:-1]):
            if (page := self._page_of.get(text)) is None:
                break
            pages.append(page)
        return pages

    def take(self, shared: Sequence[int], more: int) -> list[int] | None:
        """Pages for a sequence: those of its beginning, and more of its own; None if there are not so many."""
        if more > self.free - sum(self._users[page] == 0 for page in shared):
            return None
        for page in shared:
            self._users[page] += 1
            self._unused.pop(page, None)
        pages = [*shared]
        for _ in range(more):
            page, _ = self._unused.popitem(last=False)
            if (text := self._text_of.pop(page, None)) is not None:
                del self._page_of[text]
            self._users[page] = 1
            pages.append(page)
        return pages

    def publish(self, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Have the pages known that tokens fill, whose rows are there."""
        for text, page in zip(self._texts(tokens), pages, strict=False):
            if text not in self._page_of and page not in self._text_of:
                self._page_of[text], self._text_of[page] = page, text

    def give_back(self, pages: Sequence[int]) -> None:
        """A sequence needs its pages no more: those of its end are taken by others first."""
        for page in reversed(pages):
            self._users[page] -= 1
            if not self._users[page]:
                self._unused[page] = None

    def forget(self) -> None:
        """No page holds rows any more."""
        self._page_of.clear()
        self._text_of.clear()

    def _texts(self, tokens: Sequence[int]) -> Iterator[bytes]:
        """What each full page is known by."""
        text = hashlib.sha256()
        for start in range(0, len(tokens) - self._rows + 1, self._rows):
            text.update(np.asarray(tokens[start : start + self._rows], np.int64).tobytes())
            yield text.digest()
