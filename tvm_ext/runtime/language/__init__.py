"""Text of language models, token by token: of one sequence, and of several at once."""
