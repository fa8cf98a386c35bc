"""Programs of several sizes become one: integers that differ are expressions over the symbols."""
