"""What options of a compile are made of: flags of the command line, and values that check themselves."""
