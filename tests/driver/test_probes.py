"""Sizes at which models of symbolic sizes are planned and compared."""

from tvm_ext.driver.probes import common_sizes
from tvm_ext.runtime.sizes.symbols import Symbol


def test_common_sizes_are_sizes_of_the_symbols() -> None:
    symbols = (Symbol("N", 1, 4), Symbol("H", 32, 320), Symbol("S", 3, 21, multiple=4), Symbol("T", 1, 512))
    for sizes in common_sizes(symbols):
        assert not any(symbol.why_not(sizes[symbol.name]) for symbol in symbols)
        assert sizes["N"] == 1, "one image is the commonest batch"
    heights = [sizes["H"] for sizes in common_sizes(symbols)]
    assert heights == sorted(heights, reverse=True) and heights[-1] > 32 and heights[0] < 320
