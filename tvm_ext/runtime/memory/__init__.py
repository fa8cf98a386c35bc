"""Arrays of callers, of kernels' arguments, and of outputs."""
