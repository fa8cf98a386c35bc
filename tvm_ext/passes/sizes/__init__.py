"""Programs of symbolic sizes: one model lowered at several sizes, and what of it follows from the size."""
