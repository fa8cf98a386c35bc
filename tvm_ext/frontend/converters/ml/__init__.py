"""Converters of ai.onnx.ml: classical machine learning over rows of features."""
