"""What all scripts share: arguments, the machine, results as files."""
