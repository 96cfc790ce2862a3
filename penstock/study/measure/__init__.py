"""Measurements: of the machine, and of an engine under load."""
