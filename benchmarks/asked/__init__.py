"""What is asked of a machine: rows of the suite, questions, accuracy."""
