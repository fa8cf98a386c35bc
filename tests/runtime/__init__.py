"""Tests of tvm_ext.runtime."""
