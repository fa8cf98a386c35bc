"""Memory of a program: outputs, activations and workspace become arguments of its entry."""
