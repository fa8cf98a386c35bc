"""Tests of tvm_ext.driver."""
