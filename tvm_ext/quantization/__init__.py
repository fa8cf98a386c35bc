"""Models of reduced precision: calibration and quantization to int8, what layers lose by it."""
