"""Which layers can do with a lower precision: measured on the ONNX model, before it is compiled."""
