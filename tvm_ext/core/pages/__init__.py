"""Results as pages and charts: the extras `pages` and `plots`."""
