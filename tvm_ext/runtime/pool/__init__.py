"""Threads: where calls run, how workers wait, and what a fork does to them."""
