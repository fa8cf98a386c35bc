"""Kernels over dot-product instructions: the instructions, their operands, the image they read."""
