"""Passes from graph to graph that need no machine: folding, elimination, recognition of written-out operators."""
