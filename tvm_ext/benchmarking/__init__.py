"""Timing against other runtimes: every contender in a process of its own, in interleaved rounds."""
