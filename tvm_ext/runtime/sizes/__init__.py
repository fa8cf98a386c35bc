"""Sizes known at run time: of one program within bounds, and of a batch of rows composed of several."""
