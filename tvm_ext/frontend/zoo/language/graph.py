"""The graph of a language model of the Llama family, in the operators that onnxruntime has for it.

x = rows of the embedding                                            GatherBlockQuantized, or Gather
of each layer:
    x, h = x + feed-forward of the layer before, its RMS norm        SkipSimplifiedLayerNormalization
    attention of q, k, v = h W^T, turned, over keys and values       MatMulNBits, GroupQueryAttention
    x, h = x + that, its RMS norm
    (silu(h gate^T) * (h up^T)) down^T
logits = RMS norm of x by the embedding, or a matrix of its own

Of several sequences at once, their tokens are the rows of one matrix, the attention is PagedAttention, and logits are
those of the rows that are asked for.

Of caches of float16 the attentions compute as a whole, which is the form in which onnxruntime has it: queries, new keys
and values, cosines and sines are rounded in front of an attention, and its result is of float32 again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ....core.errors import ModelError, OptionError
from .shared_cache import Pages
from .weights import BlockMatrix, Matrix, joined

_MICROSOFT = "com.microsoft"
#: What `accuracy_level` says: products may be of 8-bit numbers, as wide as a kernel likes.
_IN_BYTES = 4


@dataclass(frozen=True)
class LlamaSizes:
    """What a language model consists of.

    Attributes:
        layers, hidden, heads, kv_heads: of the attention; a head has hidden / heads numbers.
        vocabulary: tokens.
        capacity: rows of the cache, which is how many tokens a sequence may have.
        base: of the rotary angles: position * base ** (-2 i / size).
        epsilon: of the norms.
        interleaved: whether the pairs that are turned are neighbours.
        stretch: what positions are divided by before they are turned.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    capacity: int
    base: float = 10000.0
    epsilon: float = 1e-5
    interleaved: bool = True
    stretch: float = 1.0

    @property
    def size(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads


def language_model(
    name: str, sizes: LlamaSizes, weights: Mapping[str, Matrix], every: bool = False, exact: bool = False,
    pages: Pages | None = None, cache: str = "float32",
) -> onnx.ModelProto:  # fmt: skip
    """The model of weights by their names in GGUF ("blk.0.attn_q.weight").

    Args:
        every: logits of all tokens; else of the last one.
        exact: products of float32; else they may be of 8-bit numbers.
        pages: of several sequences; None for one.
        cache: what caches hold, of :data:`CACHES`.

    Raises:
        ModelError: weights are missing, left over, or of another shape.
        OptionError: `every` of several sequences.
    """
    if every and pages:
        raise OptionError("every=True of several sequences", fix="they have logits where 'logit_rows' says")
    graph = _Graph(sizes, weights, exact, pages, cache)
    graph.model(every)
    return graph.build(name, every)


class _Graph:
    def __init__(
        self, sizes: LlamaSizes, weights: Mapping[str, Matrix], exact: bool, pages: Pages | None, cache: str
    ) -> None:  # fmt: skip
        self._sizes, self._weights, self._exact, self._pages, self._cache = sizes, weights, exact, pages, cache
        self._nodes: list[Any] = []
        self._initializers: dict[str, np.ndarray] = {}
        self._used: set[str] = set()

    # ------------------------------------------------------------ layers
    def model(self, every: bool) -> None:
        """All nodes, from "input_ids" to "logits" and the caches."""
        x, skip = self._embedding(), ""
        self._tables()
        for layer in range(self._sizes.layers):
            name = f"blk.{layer}"
            x, h = self._norm(x, skip, f"{name}.attn_norm.weight")
            skip = self._product(self._attention(h, name, layer), f"{name}.attn_output.weight")
            x, h = self._norm(x, skip, f"{name}.ffn_norm.weight")
            skip = self._feed_forward(h, name)
        _, h = self._norm(x, skip, "output_norm.weight")
        if self._pages:
            h = self._node("Gather", "chosen", [h, "logit_rows"], axis=0)
        elif not every:
            h = self._node("Gather", "last", [h, self._constant("last.index", np.array([-1]))], axis=1)
        head = "output.weight" if "output.weight" in self._weights else "token_embd.weight"
        self._product(h, head, output="logits")

    def _tables(self) -> None:
        """Cosines and sines of all positions; the angles of a Llama 3 file are divided by its "rope_freqs.weight"."""
        half = self._sizes.size // 2
        angles = self._sizes.base ** (-np.arange(half) / half)
        if "rope_freqs.weight" in self._weights:
            divisors = self._vector("rope_freqs.weight", half).astype(np.float64)
            if not ((divisors > 0) & np.isfinite(divisors)).all():
                raise ModelError("tensor 'rope_freqs.weight' divides angles by what is no number above 0")
            angles = angles / divisors
        rows = self._pages.each * self._pages.rows if self._pages else self._sizes.capacity
        turned = np.arange(rows)[:, None] / self._sizes.stretch * angles
        self._constant("rope.cos", np.cos(turned).astype(np.float32).astype(self._cache))
        self._constant("rope.sin", np.sin(turned).astype(np.float32).astype(self._cache))

    def _embedding(self) -> str:
        name, sizes = "token_embd.weight", self._sizes
        table = self._matrix(name, sizes.vocabulary, sizes.hidden)
        if isinstance(table, np.ndarray):
            return self._node("Gather", "embedding", [self._constant(name, table), "input_ids"], axis=0)
        if table.depth % table.block:
            raise ModelError(f"{name}: rows of {table.depth} numbers are no whole number of blocks of {table.block}")
        flat = BlockMatrix(table.codes.reshape(table.rows, -1), table.scales, None, table.bits, table.depth)
        operands = self._operands(f"{name}.rows", flat)
        if table.points is not None:
            raise ModelError(f"{name}: a table whose blocks have a smallest number", fix="store it as Q8_0 or Q4_0")
        return self._node(
            "GatherBlockQuantized", "embedding", [operands[0], "input_ids", operands[1]], _MICROSOFT, bits=table.bits,
            block_size=table.block, gather_axis=0, quantize_axis=1,
        )  # fmt: skip

    def _norm(self, x: str, skip: str, weight: str) -> tuple[str, str]:
        """(x + skip, its norm)."""
        known = self._constant(weight, self._vector(weight, self._sizes.hidden))
        name, epsilon = weight.removesuffix(".weight"), self._sizes.epsilon
        if not skip:
            return x, self._node("SimplifiedLayerNormalization", name, [x, known], axis=-1, epsilon=epsilon)
        outputs = [f"{name}.out", "", "", f"{name}.sum"]
        operator = "SkipSimplifiedLayerNormalization"
        self._node(operator, name, [x, skip, known], _MICROSOFT, outputs=outputs, epsilon=epsilon)
        return outputs[3], outputs[0]

    def _attention(self, h: str, name: str, layer: int) -> str:
        sizes = self._sizes
        counts = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads}
        names = [f"{name}.attn_{part}.weight" for part in counts]
        parts = [self._matrix(n, count * sizes.size, sizes.hidden)
                 for n, count in zip(names, counts.values(), strict=True)]  # fmt: skip
        whole = joined(parts)
        if whole is not None:
            operands = [self._multiply(h, f"{name}.attn_qkv", whole), "", ""]
        else:
            operands = [self._multiply(h, n.removesuffix(".weight"), m) for n, m in zip(names, parts, strict=True)]
        result, narrow = f"{name}.attn.out", self._cache != "float32"
        inside = f"{result}.float16" if narrow else result
        if narrow:
            operands = [part and self._cast(part, f"{part}.float16", f"{part}.cast", self._cache) for part in operands]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        lengths = ["seqlens_k", "total_sequence_length"]
        if self._pages:
            lengths = ["cumulative_sequence_length", "past_seqlens", "block_table"]
        self._node(
            "PagedAttention" if self._pages else "GroupQueryAttention", f"{name}.attn",
            [*operands, *past, *lengths, "rope.cos", "rope.sin"], _MICROSOFT,
            outputs=[inside, *present], num_heads=sizes.heads, kv_num_heads=sizes.kv_heads, do_rotary=1,
            rotary_interleaved=int(sizes.interleaved),
        )  # fmt: skip
        return self._cast(inside, result, f"{result}.cast", "float32") if narrow else result

    def _cast(self, x: str, output: str, name: str, dtype: str) -> str:
        return self._node("Cast", name, [x], outputs=[output], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _feed_forward(self, h: str, name: str) -> str:
        gate, up = (self._product(h, f"{name}.ffn_{part}.weight") for part in ("gate", "up"))
        opened = self._node("Sigmoid", f"{name}.ffn_sigmoid", [gate])
        silu = self._node("Mul", f"{name}.ffn_silu", [gate, opened])
        return self._product(self._node("Mul", f"{name}.ffn_mul", [silu, up]), f"{name}.ffn_down.weight")

    # ------------------------------------------------------------ products
    def _product(self, x: str, weight: str, output: str = "") -> str:
        return self._multiply(x, weight.removesuffix(".weight"), self._weights_of(weight), output)

    def _multiply(self, x: str, name: str, matrix: Matrix, output: str = "") -> str:
        """x times the transpose of a matrix."""
        node = f"{name}.matmul"
        if isinstance(matrix, np.ndarray):
            operand = self._constant(f"{name}.weight^T", np.ascontiguousarray(matrix.T))
            return self._node("MatMul", node, [x, operand], outputs=[output or f"{node}.out"])
        operands = self._operands(f"{name}.weight", matrix)
        level = {} if self._exact else {"accuracy_level": _IN_BYTES}
        return self._node(
            "MatMulNBits", node, [x, *operands], _MICROSOFT, outputs=[output or f"{node}.out"], K=matrix.depth,
            N=matrix.rows, bits=matrix.bits, block_size=matrix.block, **level,
        )  # fmt: skip

    def _operands(self, name: str, matrix: BlockMatrix) -> list[str]:
        operands = [self._constant(f"{name}.codes", matrix.codes), self._constant(f"{name}.scales", matrix.scales)]
        if matrix.points is not None:
            operands.append(self._constant(f"{name}.points", matrix.points))
        return operands

    def _weights_of(self, name: str) -> Matrix:
        if name not in self._weights:
            raise ModelError(f"there is no tensor {name!r}", fix="a model of the Llama family has it")
        self._used.add(name)
        return self._weights[name]

    def _matrix(self, name: str, rows: int, depth: int) -> Matrix:
        matrix = self._weights_of(name)
        shape = matrix.shape if isinstance(matrix, np.ndarray) else (matrix.rows, matrix.depth)
        if shape != (rows, depth):
            raise ModelError(f"tensor {name!r} has shape {shape}, where {(rows, depth)} fits")
        return matrix

    def _vector(self, name: str, size: int) -> np.ndarray:
        vector = self._weights_of(name)
        if not isinstance(vector, np.ndarray) or vector.shape != (size,):
            raise ModelError(f"tensor {name!r} is no vector of {size} floats")
        return vector

    # ------------------------------------------------------------ the file
    def _constant(self, name: str, array: np.ndarray) -> str:
        self._initializers.setdefault(name, array)
        return name

    def _node(
        self, operator: str, name: str, inputs: Sequence[str], domain: str = "", outputs: Sequence[str] = (),
        **attributes: Any,
    ) -> str:  # fmt: skip
        """A node; returns its first output."""
        outputs = list(outputs) or [f"{name}.out"]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, name, domain=domain, **attributes))
        return outputs[0]

    def build(self, name: str, every: bool) -> onnx.ModelProto:
        """The model.

        Raises:
            ModelError: tensors that no node reads.
        """
        if extra := sorted(self._weights.keys() - self._used):
            raise ModelError(f"tensors of no Llama model: {', '.join(extra[:8])}", fix="give a model of that family")
        sizes, info, pages = self._sizes, helper.make_tensor_value_info, self._pages
        caches = [f"{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
        if pages:
            cache: tuple[int, ...] = (pages.count, pages.rows, sizes.kv_heads, sizes.size)
            shape: tuple[Any, ...] = ("R", sizes.vocabulary)
            fed = [("input_ids", "INT64", ("T",)), ("cumulative_sequence_length", "INT32", (pages.sequences + 1,)),
                   ("past_seqlens", "INT32", (pages.sequences,)),
                   ("block_table", "INT32", (pages.sequences, pages.each)),
                   ("logit_rows", "INT64", ("R",))]  # fmt: skip
        else:
            cache = (1, sizes.kv_heads, sizes.capacity, sizes.size)
            shape = (1, "S" if every else 1, sizes.vocabulary)
            fed = [("input_ids", "INT64", (1, "S")), ("seqlens_k", "INT32", (1,)),
                   ("total_sequence_length", "INT32", ())]  # fmt: skip
        inputs = [info(name, getattr(TensorProto, code), sides) for name, code, sides in fed]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self._cache))
        inputs += [info(f"past_key_values.{n}", kind, cache) for n in caches]
        logits = info("logits", TensorProto.FLOAT, shape)
        outputs = [logits, *(info(f"present.{n}", kind, cache) for n in caches)]
        graph = helper.make_graph(self._nodes, name, inputs, outputs)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="tvm-ext")
        for name, array in self._initializers.items():  # behind `make_model`, which copies the graph
            _enter(model.graph.initializer.add(), name, array)
        return model


def _enter(tensor: TensorProto, name: str, array: np.ndarray) -> None:
    """Fill in a tensor where it stands: one that is added to a model is copied, as large as it is."""
    tensor.name, tensor.data_type = name, helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
