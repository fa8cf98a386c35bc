"""Reading a model: files, external data, initializers, shapes that are bound."""
