"""Operators that sum products: convolutions, matrix products, attention, recurrent networks."""

import functools

from .. import evaluators, flops, row_rules
from ..operator import Kind, Operator

_product = functools.partial(Operator, kind=Kind.PRODUCT)
_pair = functools.partial(_product, multiplied=(0, 1))
_triple = functools.partial(_product, multiplied=(0, 1, 2), rounding="whole")
_convolution = functools.partial(
    _pair, flops=flops.convolution, rows=row_rules.images("data_layout", "N"), rounding="convolution",
    magnitude="linear",
)  # fmt: skip
ROWS = (
    _convolution("relax.nn.conv2d Conv", integers=True, int8="anchor"),
    _convolution("relax.nn.conv1d relax.nn.conv3d"),
    _convolution("relax.nn.conv1d_transpose relax.nn.conv2d_transpose relax.nn.conv3d_transpose ConvTranspose",
                 flops=flops.transposed, rounding="transposed", int8="anchor"),
    _pair("relax.matmul MatMul", numpy=evaluators.matmul, flops=flops.matmul, rows=row_rules.product, integers=True,
          rounding="product", magnitude="matmul", int8="anchor"),
    _pair("Gemm", rounding="product", magnitude="matmul", int8="anchor"),
    _pair("Einsum", rounding="whole"),
    _triple("relax.nn.attention Attention", flops=flops.attention, rows=row_rules.heads),
    _triple("relax.nn.attention_bias", flops=flops.attention),
    _triple("relax.tvm_ext.cached_attention GroupQueryAttention PagedAttention", flops=flops.cached_attention,
            rows=row_rules.heads),
    Operator("relax.tvm_ext.cache_append", Kind.PICK, rows=row_rules.heads, rounding="once"),
    _triple("GRU LSTM RNN"),
    _product("relax.tvm_ext.recurrence", flops=flops.recurrence, rows=row_rules.sequences, rounding="whole"),
    _product("relax.tvm_ext.matmul_blocks", flops=flops.matmul, rows=row_rules.by_parameters, rounding="whole"),
    _product("ConvInteger", rounding="convolution", int8="only"),
    _product("MatMulInteger QGemm DynamicQuantizeMatMul MatMulIntegerToFloat MatMulNBits", int8="only"),
    _product("QLinearConv", rounding="convolution", jump="quantized", int8="only"),
    _product("QLinearMatMul", jump="quantized", int8="only"),
    _product("DFT STFT", rounding="whole"),
)  # fmt: skip
