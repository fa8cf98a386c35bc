"""A small language model of seeded weights, for tests and benchmarks of shapes."""

import math

import numpy as np
import onnx

from ....core.errors import OptionError, check_whole
from ..parameters import Parameters, between, check_sizes, kaiming
from .graph import LlamaSizes, language_model
from .shared_cache import Pages, check_cache
from .weights import Matrix, in_blocks

#: Numbers with a scale of their own, as onnxruntime has kernels for.
_BLOCKS = (16, 32, 64, 128, 256)


def llama(
    layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2, intermediate: int = 0, vocabulary: int = 256,
    capacity: int = 128, bits: int = 4, block: int = 32, seed: int = 0, every: bool = False, exact: bool = False,
    cache: str = "float32", sequences: int = 0, pages: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """A model of the Llama family with weights of few bits, whose embedding is also its last matrix.

    Args:
        layers, hidden, heads: of the decoder; a head has hidden / heads numbers, an even count.
        kv_heads: heads of keys and values.
        intermediate: width of the feed-forward, 1 or more; 0 for 8 / 3 of `hidden`, in whole blocks.
        vocabulary: tokens.
        capacity: tokens that a sequence may have.
        bits: of weights: 4 or 8, or 32 for float32.
        block: of 16, 32, 64, 128 or 256 numbers, which have a scale; `hidden` is a multiple of it.
        seed: of the weights.
        every: logits of all tokens; else of the last one.
        exact: products of float32; else they may be of 8-bit numbers.
        cache: what caches hold: "float32", or "float16", of which the attentions compute then.
        sequences: that there may be at once, over a cache in pages that they share, for a :class:`tvm_ext.Scheduler`; 0
            for one, with a cache of its own.
        pages: of 32 tokens, of the cache that sequences share; 0 for as many as all need at `capacity`.

    Returns:
        A model from "input_ids" (1, S), "seqlens_k" (1,): tokens there will be, less one, "total_sequence_length" ():
        that number, and "past_key_values.{i}.key" and ".value" (1, kv_heads, capacity, hidden / heads), to "logits"
        (1, 1 or S, vocabulary) and "present.{i}.key" and ".value", which are the past with new rows. Of several
        `sequences`: from "input_ids" (T,), the tokens of all, "cumulative_sequence_length" (sequences + 1,), where
        those of each begin, "past_seqlens" (sequences,), tokens before these, "block_table" (sequences, pages of one),
        "logit_rows" (R,), and the past (pages, 32, kv_heads, hidden / heads), to "logits" (R, vocabulary).

    Raises:
        OptionError: sizes below 1, or that do not fit, or there is no such `cache`.
    """
    check_cache(cache)
    layers, hidden, heads, kv_heads, vocabulary, capacity = check_sizes(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, vocabulary=vocabulary, capacity=capacity
    )
    if hidden % (2 * heads) or heads % kv_heads:
        wrong = f"hidden={hidden}, heads={heads}, kv_heads={kv_heads}: heads of an even width, whole for each of keys"
        raise OptionError(wrong, fix="hidden=64, heads=4, kv_heads=2")
    if bits not in (4, 8, 32):
        raise OptionError(f"bits={bits}: weights have 4, 8 or 32 bits", fix="bits=4")
    (block,) = check_sizes(block=block)
    if block not in _BLOCKS or (bits != 32 and hidden % block):
        raise OptionError(f"block={block!r}, hidden={hidden}: whole blocks of {', '.join(map(str, _BLOCKS))}")
    wide = check_whole("intermediate", intermediate) or math.ceil(hidden * 8 / 3 / block) * block
    narrow = hidden // heads * kv_heads
    shapes = {"attn_q": (hidden, hidden), "attn_k": (narrow, hidden), "attn_v": (narrow, hidden),
              "attn_output": (hidden, hidden), "ffn_gate": (wide, hidden), "ffn_up": (wide, hidden),
              "ffn_down": (hidden, wide)}  # fmt: skip
    parameters, weights = Parameters(seed), dict[str, Matrix]()

    def matrix(name: str, rows: int, depth: int) -> Matrix:
        values = parameters.get(name, (rows, depth), kaiming(depth, 1.0))
        return values if bits == 32 else in_blocks(values, bits, block)

    def norm(name: str) -> np.ndarray:
        return parameters.get(name, (hidden,), between(0.8, 1.2))

    weights["token_embd.weight"] = matrix("token_embd.weight", vocabulary, hidden)
    for layer in range(layers):
        for part, shape in shapes.items():
            weights[f"blk.{layer}.{part}.weight"] = matrix(f"blk.{layer}.{part}.weight", *shape)
        for part in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{part}.weight"] = norm(f"blk.{layer}.{part}.weight")
    weights["output_norm.weight"] = norm("output_norm.weight")
    sizes = LlamaSizes(layers, hidden, heads, kv_heads, vocabulary, capacity)
    return language_model("llama", sizes, weights, every, exact, Pages.of(sequences, pages, capacity), cache)
