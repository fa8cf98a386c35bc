"""If, Loop, Scan, sequences and functions of a model."""
