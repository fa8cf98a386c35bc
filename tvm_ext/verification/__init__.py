"""Does a compiled model compute what onnxruntime computes? Reference runs, comparison metrics, environment checks."""
