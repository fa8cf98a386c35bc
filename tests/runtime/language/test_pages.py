"""Pages of a shared cache: who has them, and what is known of them."""

import numpy as np

from tvm_ext.runtime.language.pages import PagePool


def test_pages_of_a_common_beginning_are_shared() -> None:
    pool, text = PagePool(4, 2), [1, 2, 3, 4, 5]
    pages = pool.take(pool.shared(text), 3)
    assert pages is not None and len({*pages}) == 3
    pool.publish(text, pages)
    assert pool.shared(text) == pages[:2] and pool.shared([1, 2, 3, 9]) == pages[:1]
    assert pool.shared([1, 2]) == [] and pool.shared([3, 4, 1, 2, 0]) == []
    more = pool.take(pages[:2], 1)
    assert more is not None and more[:2] == pages[:2] and more[2] not in pages and pool.free == 0
    assert pool.take((), 1) is None
    pool.give_back(pages)
    assert pool.free == 1
    pool.give_back(more)
    assert pool.free == 4 and pool.shared(text) == pages[:2]


def test_what_is_known_of_a_page_ends_with_it() -> None:
    pool = PagePool(3, 1)
    for text in ([1, 2], [3, 0]):
        pages = pool.take((), 1)
        assert pages is not None
        pool.publish(text[:1], pages)
        pool.give_back(pages)
    assert pool.take(pool.shared([1, 2]), 3) is None  # three more, of two that are left
    taken = pool.take(pool.shared([1, 2]), 2)  # the page of the other text is one of them
    assert taken is not None and pool.free == 0 and pool.shared([3, 0]) == []
    pool.give_back(taken)
    pool.forget()
    assert pool.shared([1, 2]) == [] and pool.free == 3


def test_random_sequences_keep_the_count_of_pages() -> None:
    rng, pool, held, seen = np.random.default_rng(0), PagePool(12, 2), list[tuple[list[int], list[int]]](), 0
    rows: dict[int, list[int]] = {}
    for _ in range(600):
        if held and rng.random() < 0.5:
            pool.give_back(held.pop(int(rng.integers(len(held))))[1])
            continue
        text = [int(token) for token in rng.integers(0, 2, int(rng.integers(1, 9)))]
        shared = pool.shared(text)
        for number, page in enumerate(shared):
            assert rows[page] == text[: 2 * number + 2]
        pages = pool.take(shared, -(-len(text) // 2) - len(shared))
        if pages is None:
            continue
        others = {page for _, own in held for page in own}
        assert not others & {*pages[len(shared) :]}
        for number, page in enumerate(pages):
            rows[page] = text[: 2 * number + 2]
        pool.publish(text, pages)
        held.append((text, pages))
        seen += len(shared)
        assert pool.free == 12 - len({page for _, own in held for page in own})
    assert seen > 50
