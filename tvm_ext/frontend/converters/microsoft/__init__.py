"""Converters of the operators that onnxruntime adds to ONNX: exporters and its optimizer and quantizer write them."""
