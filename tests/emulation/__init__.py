"""Instructions that a CPU may lack, executed in Python there."""
