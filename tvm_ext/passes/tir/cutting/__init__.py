"""Steps of the pass `cut-loops`: normal loops, what of them is needed, shares of threads, borders, guards."""
