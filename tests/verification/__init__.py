"""Tests of tvm_ext.verification."""
