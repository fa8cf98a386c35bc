"""Elementwise operators as scalar TIR expressions, and what keeps TVM's simplifier from changing their value."""
