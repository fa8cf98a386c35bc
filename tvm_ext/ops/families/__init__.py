"""The rows of the table of operators, a file a family."""
