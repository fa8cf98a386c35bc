"""Instructions that this CPU lacks, executed in Python."""
