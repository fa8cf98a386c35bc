"""Mutated ONNX files against this library: each is refused with a reason, or compiles and agrees with onnxruntime."""
