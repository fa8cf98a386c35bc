"""What all rooms speak: passes, recipes, machine, options, provenance, errors."""
