"""Programs of the array: instructions, assembler, layers, tiling, checks."""
