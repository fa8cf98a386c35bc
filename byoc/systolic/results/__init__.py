"""Timings as tables, rooflines, sweeps and traces."""
