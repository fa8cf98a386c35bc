"""Kernels over AMX tile registers: products, loads, work units, cost, epilogue."""
