"""Estimators with the scikit-learn contract, and the parts of their fits."""
