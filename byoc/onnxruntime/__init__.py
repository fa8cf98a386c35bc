"""A back end for nodes that no converter takes: onnxruntime runs them."""
