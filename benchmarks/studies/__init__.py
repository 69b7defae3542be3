"""Accuracy, level, power, recovery and certainty."""
