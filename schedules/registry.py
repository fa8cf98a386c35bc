"""Which recipes there are: those of this library, and those that packages offer as entry points `tvm_ext.recipes`."""

from __future__ import annotations

import functools
import importlib.metadata

from tvm_ext.core.errors import OptionError
from tvm_ext.core.recipe import Recipe

from .attention import Attention
from .batch_matmul import BatchMatmul
from .concat import Concat
from .conv2d_amx import Conv2dAmx
from .conv2d_depthwise import Conv2dDepthwise
from .conv2d_dot import Conv2dDot
from .conv2d_grouped import Conv2dGrouped
from .conv2d_nchwc import Conv2dNCHWc
from .conv2d_transpose import Conv2dTranspose
from .conv2d_winograd import Conv2dWinograd
from .dense import Dense
from .dense_amx import DenseAmx
from .dense_dot import DenseDot
from .elementwise import Elementwise
from .expand_depthwise import ExpandDepthwise
from .layer_norm import LayerNorm
from .pad import Pad
from .pool2d import Pool2d
from .reduction import Reduction
from .softmax import Softmax
from .strided_slice import StridedSlice
from .take import Take


@functools.lru_cache(maxsize=1)
def recipes() -> tuple[Recipe, ...]:
    """All recipes: this library's, then those of installed packages.

    Raises:
        OptionError: an entry point is no recipe, or two recipes have one name.
    """
    found: list[Recipe] = [
        Conv2dNCHWc(),
        Conv2dWinograd(),
        Conv2dAmx(),
        Conv2dDot(),
        Conv2dDepthwise(),
        ExpandDepthwise(),
        Conv2dGrouped(),
        Conv2dTranspose(),
        Dense(),
        DenseAmx(),
        DenseDot(),
        BatchMatmul(),
        Attention(),
        Pool2d(),
        Reduction(),
        Softmax(),
        LayerNorm(),
        Take(),
        Concat(),
        StridedSlice(),
        Pad(),
        Elementwise(),
    ]
    for entry in importlib.metadata.entry_points(group="tvm_ext.recipes"):
        made = entry.load()()
        if not isinstance(made, Recipe):
            raise OptionError(f"entry point {entry.value!r} in tvm_ext.recipes gives {type(made).__name__}, no Recipe")
        found.append(made)
    names = [r.name for r in found]
    if twice := {n for n in names if names.count(n) > 1}:
        raise OptionError(f"recipes with one name: {', '.join(sorted(twice))}", fix="rename one of them")
    return tuple(found)
