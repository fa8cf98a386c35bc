"""What several passes share: analyses of the graph, rules by operator, numpy twins of operators."""
