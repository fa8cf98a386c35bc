"""Tests of tvm_ext.cli."""
