"""Tests of tvm_ext.frontend."""
