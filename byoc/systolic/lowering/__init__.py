"""From a region of Relax to layers of the array."""
