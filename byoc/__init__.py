"""Bring your own codegen: accelerators that run parts of a model."""
