"""Scheduling steps and stages that several recipes share: loops, epilogues, copies, row reductions."""
