"""Schedule recipes: TIR kernels and how they are scheduled, one recipe a file."""

from .registry import recipes as recipes
