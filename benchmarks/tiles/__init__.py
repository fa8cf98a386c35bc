"""Kernels on AMX tile registers."""
