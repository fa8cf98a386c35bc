"""Trained models out of wheels: compiled, compared with onnxruntime, and a table of how they come out."""
