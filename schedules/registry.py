"""Which recipes there are: those of this library, and those that packages offer as entry points `tvm_ext.recipes`."""

import functools
import importlib.metadata

from tvm_ext.core.errors import OptionError
from tvm_ext.core.recipe import Recipe

from .cache.append import CacheAppend
from .cache.recipe import CachedAttention
from .recipes.attention import Attention
from .recipes.batch_matmul import BatchMatmul
from .recipes.blocks import plain as plain
from .recipes.blocks.dense_blocks import DenseBlocks
from .recipes.blocks.matmul_blocks import MatmulBlocks
from .recipes.blocks.take_blocks import TakeBlocks
from .recipes.concat import Concat, ConcatAnySize
from .recipes.convolution.conv2d_amx import Conv2dAmx
from .recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from .recipes.convolution.conv2d_dot import Conv2dDot
from .recipes.convolution.conv2d_grouped import Conv2dGrouped
from .recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from .recipes.convolution.conv2d_transpose import Conv2dTranspose
from .recipes.convolution.conv2d_winograd import Conv2dWinograd
from .recipes.convolution.expand_depthwise import ExpandDepthwise
from .recipes.dense import Dense
from .recipes.dense_amx import DenseAmx
from .recipes.dense_dot import DenseDot
from .recipes.elementwise import Elementwise
from .recipes.layer_norm import LayerNorm
from .recipes.pad import Pad
from .recipes.pool2d import Pool2d
from .recipes.recurrent import Recurrent
from .recipes.reduction import Reduction
from .recipes.softmax import Softmax
from .recipes.strided_slice import StridedSlice
from .recipes.take import Take

#: The recipes of this library, in the order in which groups are offered to them.
_OWN: tuple[type[Recipe], ...] = (
    Conv2dNCHWc, Conv2dWinograd, Conv2dAmx, Conv2dDot, Conv2dDepthwise, ExpandDepthwise, Conv2dGrouped,
    Conv2dTranspose, Dense, DenseAmx, DenseDot, MatmulBlocks, DenseBlocks, BatchMatmul, Attention, CacheAppend,
    CachedAttention, Recurrent, Pool2d, Reduction, Softmax, LayerNorm, Take, TakeBlocks, Concat, ConcatAnySize,
    StridedSlice, Pad, Elementwise,
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def recipes() -> tuple[Recipe, ...]:
    """All recipes: this library's, then those of installed packages.

    Raises:
        OptionError: an entry point is no recipe, or two recipes have one name.
    """
    known: list[Recipe] = [recipe() for recipe in _OWN]
    for entry in importlib.metadata.entry_points(group="tvm_ext.recipes"):
        recipe = entry.load()()
        if not isinstance(recipe, Recipe):
            kind = type(recipe).__name__
            raise OptionError(f"entry point {entry.value!r} in tvm_ext.recipes gives {kind}, no Recipe")
        known.append(recipe)
    names = [r.name for r in known]
    if twice := {n for n in names if names.count(n) > 1}:
        raise OptionError(f"recipes with one name: {', '.join(sorted(twice))}", fix="rename one of them")
    return tuple(known)
