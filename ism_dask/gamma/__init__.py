"""Gamma, the dependence that W is to explain: from classes, numbers or an embedding."""
