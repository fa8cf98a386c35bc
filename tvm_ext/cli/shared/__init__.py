"""What verbs share: inputs, options, results, stages."""
