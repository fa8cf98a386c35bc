"""Double buffers at a bandwidth, against what SCALE-Sim printed and against counting by hand."""

from typing import Any

import numpy as np
import pytest

from tests.byoc.systolic.cases import scalesim_memory_cycles, scalesim_memory_rows
from tvm_ext.byoc.systolic.simulation.cycles import gemm_cycles
from tvm_ext.byoc.systolic.simulation.scale_sim import (
    Memories,
    MemoryCycles,
    kept_rows,
    scale_sim_cycles,
    window_addresses,
)
from tvm_ext.core.errors import OptionError

FLOWS = ("ws", "os", "is")


def matrix(m: int, k: int) -> np.ndarray:
    return np.arange(m * k).reshape(m, k)


def test_every_printed_row_of_scalesim() -> None:
    rows = scalesim_memory_rows()
    assert len(rows) == 112 and {row["dataflow"] for row in rows} == set(FLOWS)
    user = [row for row in rows if row["bandwidth"] != "CALC"]
    assert sum(row["sparsity"] == "1:1" for row in user) == 60 and sum(int(row["stalls"]) > 0 for row in user) > 60
    pairs = [(row, *scalesim_memory_cycles(row)) for row in rows]
    assert [row for row, computed, printed in pairs if computed != printed] == []


@pytest.mark.parametrize("dataflow", FLOWS)
def test_buffers_that_hold_everything_never_stall(dataflow: str) -> None:
    for bandwidth in (4, None):
        counted = scale_sim_cycles(dataflow, matrix(7, 9), 5, 4, 4, Memories(words_per_cycle=bandwidth))
        assert counted.stalls == 0
        assert counted.total == gemm_cycles(dataflow, 7, 9, 5, 4, 4, "scalesim") - 1


def test_a_late_turn_stalls_twice() -> None:
    """One PE, A of 150 words in a buffer of 200: 100 words are there, in sets of 2; the 101st word waits for a turn.

    The turn takes 100 cycles and one, of which the array has used as many as words it read, and a cycle.
    """
    counted = scale_sim_cycles("os", matrix(1, 150), 1, 1, 1, Memories(200, 1000, 1000, words_per_cycle=1))
    late = (-1 + 101) - (100 + 1)
    assert late < 0 and counted == MemoryCycles(149 + 150, 149, 0)  # B's 150 words come before
    counted = scale_sim_cycles("os", matrix(2, 75), 1, 2, 1, Memories(200, 1000, 1000, words_per_cycle=1))
    requested = 50  # both rows ask, the second a cycle later: cycle 50 asks for words 100 and 101 of the skewed order
    late = (-1 + 101) - (requested + 1)
    assert counted.stalls == 2 * late


def test_sparse_weights_are_a_smaller_gemm() -> None:
    memories = Memories(200, 200, 200, words_per_cycle=3)
    for flow in FLOWS:
        sparse = scale_sim_cycles(flow, matrix(11, 26), 9, 4, 3, memories, (2, 4))
        assert sparse == scale_sim_cycles(flow, matrix(11, 14), 9, 4, 3, memories)
    assert kept_rows(11, (3, 5)).tolist() == [0, 1, 2, 5, 6, 7, 10]


def test_windows_share_addresses() -> None:
    a = window_addresses(4, 5, (2, 3), 2, 1)
    image = np.arange(40).reshape(4, 5, 2)
    assert a.shape == (3 * 3, 12)
    assert all((a[3 * y + x] == image[y : y + 2, x : x + 3].ravel()).all() for y in range(3) for x in range(3))
    assert window_addresses(1, 6, (1, 6), 1, 1).tolist() == [list(range(6))]
    assert window_addresses(4, 2, (1, 2), 1, 2).tolist() == [[0, 1], [4, 5], [-1, -1]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dataflow": "rs"}, {"n": 0}, {"rows": -1}, {"a": np.zeros((0, 3), int)}, {"a": np.zeros(3, int)},
        {"a": np.ones((2, 2))}, {"sparsity": (3, 2)}, {"sparsity": (0, 2)}, {"n": 1 << 26},
    ],
)  # fmt: skip
def test_refusals(wrong: dict[str, Any]) -> None:
    good = {"dataflow": "ws", "a": matrix(2, 3), "n": 1, "rows": 4, "cols": 4, "memories": Memories()}
    with pytest.raises(OptionError):
        scale_sim_cycles(**{**good, **wrong})


@pytest.mark.parametrize("wrong", [{"input_bytes": 100}, {"output_bytes": 1e3}, {"words_per_cycle": 0}])
def test_memories_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Memories(**wrong)
