"""Converters of operators over images: pooling, resizing, sampling, windows."""
