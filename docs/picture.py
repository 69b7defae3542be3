"""Draw docs/wine.svg, the picture of the README: two new features of Wine and their weights.

Usage: python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_wine

from flows.reports.pictures import DPI, page_style, svg_document
from ism_dask import PredictiveIKDR
from ism_dask.pictures.drawing import draw_classes, draw_weights

WIDTH, HEIGHT, TOP = 1080.0, 330.0, 9
TITLE = "178 wines of three growers in two new features"
CAPTION = "their rows, and the weights of the old features in each"


def main() -> None:
    """Fit, draw, write."""
    data = load_wine()
    fitted = PredictiveIKDR(2).fit(data.data, data.target)
    names = np.array(data.feature_names)
    names[names == "od280/od315_of_diluted_wines"] = "od280/od315"
    growers = [f"grower {number}" for number in (1, 2, 3)]
    points, axis_names = fitted.transform(data.data), ("feature 1", "feature 2")
    with page_style():
        figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
        rows, *features = figure.subplots(1, 3)
        draw_classes(rows, points, data.target, growers, axis_names)
        rows.legend()
        for number, (ax, weights) in enumerate(zip(features, fitted.components_, strict=True), 1):
            largest = np.argsort(-np.abs(weights), kind="stable")[:TOP]
            draw_weights(ax, names[largest], weights[largest])
            ax.set_xlabel(f"weights of feature {number}")
        text = svg_document(figure, f"{TITLE}: {CAPTION}")
    (Path(__file__).parent / "wine.svg").write_text(text)


if __name__ == "__main__":
    main()
