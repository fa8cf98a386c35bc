"""Tests of tvm_ext.benchmarking."""
