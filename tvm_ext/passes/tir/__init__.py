"""TIR -> TIR: from scheduled kernels to what LLVM takes."""
