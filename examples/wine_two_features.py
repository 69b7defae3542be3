"""Fit two new features of Wine, and print, draw and cross-validate them.

The script shows how to fit, read and draw the components, and how to compare them with those of
PCA and LDA by cross-validation. It writes one picture, and takes a few seconds.

    python examples/wine_two_features.py
    python examples/wine_two_features.py --out wine.png --folds 5
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.base import TransformerMixin
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from ism_dask import PredictiveIKDR, SupervisedIKDR, plot, progress_bar

METHODS: dict[str, TransformerMixin] = {
    "PCA": PCA(2),
    "LDA": LinearDiscriminantAnalysis(n_components=2),
    "IKDR": PredictiveIKDR(2),
}


def main() -> None:
    """Fit the features, print and draw them, and compare them with PCA and LDA."""
    options = parsed()
    X, y = load_wine(return_X_y=True, as_frame=True)
    fitted = PredictiveIKDR(2).fit(X, y)
    tell(fitted, X.columns)
    draw(fitted, X, y, options.out)
    compare(X, y, options.folds)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("wine-two-features.png"))
    parser.add_argument("--folds", type=int, default=10)
    return parser.parse_args()


def tell(fitted: SupervisedIKDR, names: pd.Index) -> None:
    """Print the largest weights, what the features explain, and how the fit ended."""
    for number, weights in enumerate(fitted.components_, start=1):
        largest = pd.Series(weights, names).sort_values(key=abs, ascending=False).head(4)
        told = ", ".join(f"{name} {weight:+.2f}" for name, weight in largest.items())
        alone = fitted.contributions_.alone[number - 1]
        print(f"new feature {number} (explains {alone:.0%} alone): {told}")
    print(f"together they explain {fitted.objective_:.0%}; the fit {fitted.status_.meaning}")


def draw(fitted: SupervisedIKDR, X: pd.DataFrame, y: pd.Series, out: Path) -> None:
    """Write a picture with the weights above, and the rows below."""
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplot_mosaic([["first", "second"], ["rows", "rows"]])
    plot.components(fitted, top=6, axes=[axes["first"], axes["second"]])
    plot.scatter(fitted, X, y, ax=axes["rows"])
    plt.savefig(out)
    print(f"picture: {out}")


def compare(X: pd.DataFrame, y: pd.Series, folds: int) -> None:
    """Print the accuracy of a support vector machine on two features of each method."""
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    print(f"accuracy on two features, {folds} folds:")
    for name, method in METHODS.items():
        # Standardised within each fold, so that the held-out rows do not influence the fit.
        model = make_pipeline(StandardScaler(), method, SVC())
        with progress_bar(name):
            scores = cross_val_score(model, X, y, cv=split)
        print(f"  {name:4}  {scores.mean():.3f} +- {scores.std():.3f}")


if __name__ == "__main__":
    main()
