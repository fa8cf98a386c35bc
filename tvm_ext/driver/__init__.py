"""From a model to a compiled program: the compile driver, its on-disk cache, the onnxruntime-like session."""
