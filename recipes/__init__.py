"""Experiments that were run, with what was found: one file each."""
