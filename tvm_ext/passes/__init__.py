"""Relax -> Relax passes, one a file, and the pipeline that lists them in order."""
