"""Lowering of TIR kernels, and what the build does to their loops and buffers."""
