"""Colored maximum variance unfolding: classes, spectrum and distances, beside other maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from sklearn.neighbors import (
    KNeighborsClassifier,
    NearestNeighbors,
    NeighborhoodComponentsAnalysis,
)

from benchmarks.measure import Figure, PeakMemory, in_processes, say, timed
from benchmarks.registry import figure
from benchmarks.rows import Array, Labelled, labelled, mnist_train
from flows.builtin import ingest
from ism_dask import ColoredMVU

_COLORED, _PLAIN = "colored MVU", "plain MVU"
_ROUGH_COLORED, _ROUGH_PLAIN = "colored MVU, not refined", "plain MVU, not refined"
_NEIGHBOURS, _AXES = 10, 20
_HELD_OUT = 0.2
# Isomap and NCA hold all distances of pairs: 8,000 rows would take minutes.
_MOST_ROWS_IN_PAIRS = 4_000
_SECONDS, _GIGABYTES = 300, 3.0


@dataclass(frozen=True, eq=False)
class _Map:
    """A map of rows into the plane.

    Attributes
    ----------
    places : (n, 2) array
        The places of the first n rows of the training part.
    transform : callable
        Places other rows.
    spectrum : array or None
        The variances along axes, in decreasing order, if the method has some.
    """

    places: Array
    transform: Callable[[Array], Array]
    spectrum: Array | None = None


@figure
def unfolded() -> Figure:
    """Map digits and MNIST's 10,000 test images: classes, spectrum, distances.

    A fifth of the rows is held out. `same class` is the share of the 10 nearest rows in the plane
    that have the class of a row, `held out` the accuracy of 10 nearest neighbours for rows that
    the map places later. `two axes` is the share of the first two eigenvalues (of Isomap and PCA:
    of 20). `distance error` is that of the distances of the 10 nearest neighbours, after the best
    common scale. Isomap maps 4,000 rows at most, and NCA learns from 4,000 at most. Pixels have one
    unit: no map scales them.
    """
    methods = [name for name in _METHODS if name != "supervised UMAP" or find_spec("umap")]
    cells = [(data, method) for data in ("digits", "mnist") for method in methods]
    lines = list(in_processes(_line, cells))
    by_name = {(line["data"], line["map"]): line for line in lines}
    notes = [_verdict(by_name, data) for data in ("digits", "mnist")]
    return {
        "table": lines,
        "notes": notes,
        "must": "the semi-definite programs certified to a gap of 1e-8",
        "met": all(line.get("gap", 0.0) <= 1e-8 for line in lines),
    }


@figure
def unfolded60k() -> Figure:
    """Colored MVU of MNIST's 60,000 training images, and the places of its 10,000 test images."""
    rows, test = labelled(mnist_train()).in_memory(), _mnist_test()
    with PeakMemory() as peak:
        run = timed(lambda: ColoredMVU(standardize=False).fit(rows.X, rows.y))
    model = run.value
    say(f"{run.seconds:.0f} s, {peak.together / 1e9:.2f} GB; placing the test images ...")
    placed = timed(lambda: model.transform(test.X))
    nearest = KNeighborsClassifier(_NEIGHBOURS).fit(model.embedding_, rows.y)
    return {
        "seconds": run.seconds,
        "fit_peak_gb": peak.together / 1e9,
        "seconds_to_place_10000": placed.seconds,
        "accuracy_of_test_images": nearest.score(placed.value, test.y),
        "two_axes": _share_of_two(model.eigenvalues_),
        "distance_error": model.distance_error_,
        "duality_gap": model.duality_gap_,
        "n_iter": model.n_iter_,
        "status": model.status_.value,
        "must": "5 minutes and 3 GB for the fit, converged",
        "peak_limit_gb": _GIGABYTES,
        "met": bool(run.seconds <= _SECONDS and model.converged_),
    }


def _verdict(lines: dict[tuple[str, str], Figure], data: str) -> str:
    """Return in words whether side information makes classes clearer and the spectrum sparser."""
    parts = []
    for colored, plain in ((_COLORED, _PLAIN), (_ROUGH_COLORED, _ROUGH_PLAIN)):
        one, other = lines[data, colored], lines[data, plain]
        for column, claim in (("same class", "clearer classes"), ("two axes", "sparser spectrum")):
            word = "confirmed" if one[column] > other[column] else "denied"
            parts.append(f"{claim} {word} ({one[column]:.3f} against {other[column]:.3f})")
    refined, rough = "; ".join(parts[:2]), "; ".join(parts[2:])
    return f"{data}, colored against plain MVU: {refined}; not refined: {rough}"


def _mnist_test() -> Labelled:
    return labelled(ingest("mnist", "test")).in_memory()


def _line(data: str, method: str) -> Figure:
    """Return the figures of one map of one data set."""
    rows = _mnist_test() if data == "mnist" else labelled(ingest(data)).in_memory()
    order = np.random.default_rng(0).permutation(len(rows.y))
    train, test = order[(held := int(_HELD_OUT * len(order))) :], order[:held]
    X, y = np.asarray(rows.X, dtype=np.float64), rows.y
    run = timed(partial(_METHODS[method], X[train], y[train]))
    places, spectrum = run.value.places, run.value.spectrum
    own, its_class = X[train][: len(places)], y[train][: len(places)]
    held_out = KNeighborsClassifier(_NEIGHBOURS).fit(places, its_class)
    line: Figure = {
        "data": data,
        "map": method,
        "rows": len(places),
        "same class": _same_class(places, its_class),
        "held out": held_out.score(run.value.transform(X[test]), y[test]),
        "two axes": float("nan") if spectrum is None else _share_of_two(spectrum),
        "distance error": _distance_error(own, places),
        "seconds": run.seconds,
    }
    model = getattr(run.value.transform, "__self__", None)
    if isinstance(model, ColoredMVU):
        line["gap"] = model.duality_gap_
    say(f"{data}, {method}: {line['same class']:.3f} of neighbours of the same class")
    return line


def _share_of_two(spectrum: Array) -> float:
    return float(spectrum[:2].sum() / spectrum.sum())


def _same_class(places: Array, y: Array) -> float:
    """Return the share of the nearest rows in the plane that have the class of a row."""
    nearest = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(places).kneighbors()[1]
    return float((y[nearest] == y[:, None]).mean())


def _distance_error(X: Array, places: Array) -> float:
    """Return the relative error of the distances of neighbours, after the best common scale."""
    distances, nearest = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(X).kneighbors()
    lengths = np.linalg.norm(places[nearest] - places[:, None], axis=2)
    scale = np.vdot(lengths, distances) / np.vdot(lengths, lengths)
    return float(np.linalg.norm(scale * lengths - distances) / np.linalg.norm(distances))


def _mvu(X: Array, y: Array | None, *, refine: bool) -> _Map:
    model = ColoredMVU(standardize=False, refine=refine).fit(X, y)
    return _Map(model.embedding_, model.transform, model.eigenvalues_)


def _pca(X: Array, _: Array) -> _Map:
    model = PCA(_AXES, random_state=0).fit(X)
    places = model.transform(X)[:, :2]
    return _Map(places, lambda rows: model.transform(rows)[:, :2], model.explained_variance_)


def _isomap(X: Array, _: Array) -> _Map:
    head = X[:_MOST_ROWS_IN_PAIRS]
    model = Isomap(n_neighbors=_NEIGHBOURS, n_components=_AXES).fit(head)
    spectrum = model.kernel_pca_.eigenvalues_
    return _Map(model.embedding_[:, :2], lambda rows: model.transform(rows)[:, :2], spectrum)


def _nca(X: Array, y: Array) -> _Map:
    """Map rows by the projection of neighbourhood components analysis, a rival that uses y."""
    head, model = slice(_MOST_ROWS_IN_PAIRS), NeighborhoodComponentsAnalysis(2, random_state=0)
    model.fit(X[head], y[head])
    return _Map(model.transform(X), model.transform)


def _umap(X: Array, y: Array) -> _Map:
    model: Any = import_module("umap").UMAP(random_state=0, n_jobs=1).fit(X, y)
    return _Map(np.asarray(model.embedding_), model.transform)


_METHODS: dict[str, Callable[[Array, Array], _Map]] = {
    _COLORED: partial(_mvu, refine=True),
    _PLAIN: lambda X, _: _mvu(X, None, refine=True),
    _ROUGH_COLORED: partial(_mvu, refine=False),
    _ROUGH_PLAIN: lambda X, _: _mvu(X, None, refine=False),
    "PCA": _pca,
    "Isomap": _isomap,
    "NCA": _nca,
    "supervised UMAP": _umap,
}
