"""The tests mirror the tree of the library."""
