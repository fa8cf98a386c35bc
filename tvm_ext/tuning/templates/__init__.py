"""Templates of AutoTVM's kind: knobs, their choices, and spaces of configurations."""
