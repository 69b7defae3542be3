"""Draw docs/wine.svg, the picture of the README: two new features of Wine and their weights.

Usage: python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from ism_dask import SupervisedIKDR

COLOURS = ("#1b9e77", "#d95f02", "#7570b3")
WIDTH, HEIGHT, MARGIN = 360, 320, 28
LEFT = WIDTH + 170


def main() -> None:
    """Fit, draw, write."""
    data = load_wine()
    fitted = SupervisedIKDR(2).fit(data.data, data.target)
    points = fitted.transform(data.data)
    body = [*_scatter(points, data.target), *_bars(fitted.components_, data.feature_names)]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + 330} {HEIGHT + 30}" '
        'font-family="sans-serif" font-size="11">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )
    (Path(__file__).parent / "wine.svg").write_text(picture)


def _scatter(points: np.ndarray, labels: np.ndarray) -> list[str]:
    low, high = points.min(axis=0), points.max(axis=0)
    unit = (points - low) / (high - low)
    x = MARGIN + unit[:, 0] * (WIDTH - 2 * MARGIN)
    y = HEIGHT - MARGIN - unit[:, 1] * (HEIGHT - 2 * MARGIN)
    dots = [
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.4" fill="{COLOURS[label]}" fill-opacity="0.75"/>'
        for a, b, label in zip(x, y, labels, strict=True)
    ]
    title = "178 wines in two new features, three growers"
    return [
        f'<text x="{MARGIN}" y="16" font-size="13">{title}</text>',
        *dots,
        f'<text x="{WIDTH / 2}" y="{HEIGHT}" text-anchor="middle">feature 1</text>',
        f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {HEIGHT / 2})">feature 2</text>',
    ]


def _bars(components: np.ndarray, names: list[str]) -> list[str]:
    lines = [f'<text x="{WIDTH + 20}" y="16" font-size="13">what they are made of (weights)</text>']
    step = (HEIGHT - 40) / len(names)
    for row, name in enumerate(names):
        y = 40 + row * step
        short = name.split("/")[0].replace("_", " ")
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short}</text>')
        for column, (weights, fill) in enumerate(zip(components, ("#444", "#9bb8d3"), strict=True)):
            zero = LEFT + 75 + column * 165
            size = 95 * weights[row]
            lines.append(
                f'<rect x="{zero + min(size, 0):.1f}" y="{y - 5:.1f}" width="{abs(size):.1f}" '
                f'height="{step * 0.6:.1f}" fill="{fill}"/>'
            )
    for column in range(2):
        zero = LEFT + 75 + column * 165
        lines.append(f'<line x1="{zero}" y1="30" x2="{zero}" y2="{HEIGHT - 8}" stroke="#bbb"/>')
        lines.append(
            f'<text x="{zero}" y="{HEIGHT + 8}" text-anchor="middle">feature {column + 1}</text>'
        )
    return lines


if __name__ == "__main__":
    main()
