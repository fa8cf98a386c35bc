"""Passes from graph to scheduled kernels: precision, storage, groups, recipes, layouts, schedules."""
