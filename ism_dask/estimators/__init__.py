"""Estimators with the scikit-learn contract, one file for each paradigm."""
