"""What verbs share: inputs, options, tables, stages, timings."""
