"""How rows divide among threads."""

import pytest

from tvm_ext.core.cost.sharing import Sharing


@pytest.mark.parametrize("rows", [1, 2, 7, 49, 64, 65, 100, 224])
@pytest.mark.parametrize("threads", [1, 2, 3, 28, 64])
def test_rows_are_done_by_as_few_threads_as_finish_as_early(rows: int, threads: int) -> None:
    shared = Sharing.of_rows(rows, threads)
    assert shared.busiest == -(-rows // threads)
    assert 1 <= shared.threads <= min(rows, threads)
    assert (shared.threads - 1) * shared.busiest < rows <= shared.threads * shared.busiest


def test_rounding_is_work_beyond_the_real() -> None:
    assert Sharing.of_rows(96, 64) == Sharing(48, 96, 2)
    assert Sharing.of_rows(96, 64).rounding == 0
    assert Sharing(4, 10, 3).rounding == pytest.approx(0.2)
    assert Sharing(4, 10, 3).part == pytest.approx(0.3)
