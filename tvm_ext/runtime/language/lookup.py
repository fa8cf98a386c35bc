"""Drafts of what follows, by looking up in the text so far how its last tokens went on before.

A. Saxena, "Prompt Lookup Decoding" (2023); Y. Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding" (2023).
"""

from collections.abc import Sequence

import numpy as np

#: Tokens that must be the same, at most and at least.
_LONGEST, _SHORTEST = 3, 1


def draft_of(tokens: Sequence[int], count: int) -> list[int]:
    """What followed the last tokens where they stood before: as many of them as are the same, at the latest place.

    Where the text ends before there are enough, it is taken to repeat itself.

    Returns:
        `count` tokens; none where the last token is new.
    """
    text = np.asarray(tokens, np.int64)
    for size in range(min(_LONGEST, len(text) - 1), _SHORTEST - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
        places = np.flatnonzero((windows == text[len(text) - size :]).all(1))
        if count and len(places):
            behind = text[int(places[-1]) + size :]
            return [int(token) for token in np.resize(behind, count)]
    return []
