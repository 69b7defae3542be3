"""Seconds, memory and scale."""
