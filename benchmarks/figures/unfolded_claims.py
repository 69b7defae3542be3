"""The claims of the paper on colored MVU, on digits, made-up texts of a hierarchy, and papers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from benchmarks.figures.sparse_texts import texts
from benchmarks.measure import Figure, PeakMemory, say, timed
from benchmarks.parallel import in_processes
from benchmarks.rows import Array
from ism_dask import ColoredMVU
from ism_dask.unfolding.nearest_rows import NearestRows
from ism_dask.unfolding.neighbour_graph import NeighbourGraph, neighbour_graph
from ism_dask.unfolding.program import FactorKernel
from ism_dask.unfolding.refinement import CoordinateObjective, climb

_NEIGHBOURS = 10
_HELD_OUT = 0.2
# Eigenvalues of K that are a larger share of the largest count in its rank.
_RANK = 1e-6
# Axes of a climb count that have a larger share of the largest variance; its rows, and its steps.
_LEAST_VARIANCE, _FEW_ROWS, _STEPS = 1e-3, 400, 2000
# The texts: their number, their words, their mean length, and how far rates of a word differ
# between the children of a node of the hierarchy (deviation of their logarithm), by level.
_TEXTS, _WORDS, _LENGTH, _LEVELS = 2000, 5000, 60, (0.5, 0.5)
# The groups at the top of the hierarchy, and the groups below each of them.
_TOP, _BELOW = 4, 4
# The papers: fields, authors in each field, the share of authors from any field, and how far the
# rates of words of a field and of an author differ.
_FIELDS, _AUTHORS, _GUESTS, _FIELD, _OWN = 6, 40, 0.1, 0.5, 0.5


@dataclass(frozen=True, eq=False)
class _Texts:
    """Rows with side information and what neighbours in the plane are to have in common.

    Attributes
    ----------
    X : (n, d) array or sparse array
    factor : (n, r) array
        `factor @ factor.T` is the kernel of side information.
    alike : dict
        By a name, arrays (n, s) whose products are positive for rows that are alike.
    """

    X: Any
    factor: Array
    alike: dict[str, Array]


def unfolded_claims() -> Figure:
    """Unfold digits, texts and papers with side information and without: classes and spectrum.

    Texts are made up: the logarithm of the rate of a word in a group differs from that in the group
    above it by a normal number; counts are Poisson, rows are tf-idf. The side information is which
    groups, of both levels, a text is in. Papers have one to four authors, nine in ten of one field;
    a word has the mean of the rates of the authors. The side information is who wrote them.

    Shares are those of the 10 nearest rows in the plane that have the same class, group or field,
    or an author in common; `held out`, of the nearest rows of the fit to a fifth of the rows that
    are placed later. `two axes` is the share of the first two of 20 eigenvalues of K.
    """
    cells = [(data, refine, y) for data in _DATA for refine in (True, False) for y in (True, False)]
    lines = [line for each in in_processes(_shares, cells) for line in each]
    by_map = {(line["data"], line["alike"], line["map"]): line for line in lines}
    verdicts = [
        _verdict(by_map[data, alike, name], by_map[data, alike, f"plain{name[7:]}"])
        for data, alike, name in by_map
        if name.startswith("colored")
    ]
    return {
        "table": lines,
        "notes": verdicts,
        "must": "the semi-definite programs certified to a gap of 1e-8",
        "met": all(line["gap"] <= 1e-8 for line in lines),
    }


def unfolded_sparse() -> Figure:
    """Colored MVU of 8,000 made-up texts of 50,000 words, and the places of 2,000 others."""
    X, y = texts(10_000, 50_000, seed=0)
    X, train, test = (
        csr_array(TfidfTransformer().fit_transform(X)),
        slice(8_000),
        slice(8_000, None),
    )
    with PeakMemory() as peak:
        run = timed(lambda: ColoredMVU(standardize=False).fit(X[train], y[train]))
    placed = timed(lambda: run.value.transform(X[test]))
    near = KNeighborsClassifier(_NEIGHBOURS).fit(run.value.embedding_, y[train])
    return {
        "seconds": run.seconds,
        "seconds_to_place_2000": placed.seconds,
        "fit_peak_gb": peak.together / 1e9,
        "accuracy": near.score(placed.value, y[test]),
        "must": "2 minutes and 2 GB for the fit, converged",
        "peak_limit_gb": 2.0,
        "met": bool(run.seconds <= 120 and run.value.converged_),
    }


def unfolded_rank() -> Figure:
    """Count the axes of K for digits of two to six classes, beside the classes less one.

    `colored` and `plain` are those of the program, with and without y. `at most` are those of
    coordinates, with two axes more than the bound, that are refined where distances of neighbours
    may shrink at no cost: then no neighbours push apart, and the bound of the paper has a proof.
    """
    lines = list(in_processes(_rank, [(count,) for count in (2, 3, 4, 6)]))
    return {
        "table": lines,
        "must": "at most one axis less than there are classes, where distances may shrink",
        "met": all(line["at most"] < line["classes"] for line in lines),
    }


def unfolded_bounds() -> Figure:
    """Refine digits and a roll where distances may shrink at no cost, beside the usual refinement.

    `distances` is the error of the distances of neighbours after the best common scale, `same
    class` the share of the 10 nearest rows in the plane.
    """
    cells = [(data, nu) for data in ("digits", "roll") for nu in (0.1, 0.3, 1.0, 3.0)]
    lines = list(in_processes(_bounds, cells))
    by_nu = {line["nu"]: line for line in lines if line["data"] == "digits"}
    return {
        "table": lines,
        "must": "at most 0.05 more neighbours of the same class than at a smaller `nu`",
        "met": by_nu[1.0]["at most: same class"] <= by_nu[0.3]["equal: same class"] + 0.05,
    }


def _verdict(colored: Figure, plain: Figure) -> str:
    """Return in words whether side information makes classes clearer and the spectrum sparser."""
    parts = []
    claims = {
        "plane": "clearer",
        "held out": "clearer for rows placed later",
        "two axes": "sparser",
    }
    for column, claim in claims.items():
        one, other = colored[column], plain[column]
        word = "confirmed" if one > other else "denied"
        parts.append(f"{claim} {word} ({one:.3f} against {other:.3f})")
    return f"{colored['data']}, {colored['alike']}, {colored['map']}: {'; '.join(parts)}"


def _shares(data: str, refine: bool, with_y: bool) -> list[Figure]:
    """Return a line of the table for each way in which rows may be alike."""
    texts = _DATA[data]()
    n = texts.X.shape[0]
    order = np.random.default_rng(0).permutation(n)
    train, test = order[(held := int(_HELD_OUT * n)) :], order[:held]
    model = ColoredMVU(standardize=False, refine=refine, target="factor" if with_y else "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an axis may be free
        model.fit(texts.X[train], texts.factor[train] if with_y else None)
    name = ("colored" if with_y else "plain") + ("" if refine else ", not refined")
    places, later = model.embedding_, model.transform(texts.X[test])
    rows = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(texts.X[train]).kneighbors()[1]
    search = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(places)
    say(f"{data}, {name}: {model.status_.value}, {model.n_iter_} steps")
    return [
        {
            "data": data,
            "alike": alike,
            "map": name,
            "all columns": _alike(marks[train], marks[train], rows),
            "plane": _alike(marks[train], marks[train], search.kneighbors()[1]),
            "held out": _alike(marks[test], marks[train], search.kneighbors(later)[1]),
            "two axes": float(model.eigenvalues_[:2].sum() / model.eigenvalues_.sum()),
            "distance error": model.distance_error_,
            "gap": model.duality_gap_,
        }
        for alike, marks in texts.alike.items()
    ]


def _alike(marks: Array, others: Array, nearest: Array) -> float:
    """Return the share of nearest rows (n, k) among others that have a mark of a row."""
    return float((np.einsum("nm,nkm->nk", marks, others[nearest]) > 0).mean())


def _digits() -> _Texts:
    X, y = load_digits(return_X_y=True)
    marks = np.eye(10)[y]
    return _Texts(X, marks, {"class": marks})


def _newsgroups() -> _Texts:
    rng = np.random.default_rng(0)
    group = rng.integers(_TOP * _BELOW, size=_TEXTS)
    top = np.repeat(rng.normal(size=(_TOP, _WORDS)), _BELOW, axis=0)
    shifts = _LEVELS[0] * top + _LEVELS[1] * rng.normal(size=(_TOP * _BELOW, _WORDS))
    groups, tops = np.eye(_TOP * _BELOW)[group], np.eye(_TOP)[group // _BELOW]
    X = _counted(_rates(shifts)[group], rng)
    return _Texts(X, np.hstack([groups, tops]), {"group": groups, "group above": tops})


def _papers() -> _Texts:
    rng = np.random.default_rng(0)
    authors = _FIELDS * _AUTHORS
    field = np.repeat(np.arange(_FIELDS), _AUTHORS)
    shifts = _FIELD * rng.normal(size=(_FIELDS, _WORDS))[field]
    rates = _rates(shifts + _OWN * rng.normal(size=(authors, _WORDS)))
    wrote, of = np.zeros((_TEXTS, authors)), rng.integers(_FIELDS, size=_TEXTS)
    for paper in range(_TEXTS):
        own = of[paper] * _AUTHORS + rng.integers(_AUTHORS, size=1 + rng.integers(4))
        any_field = rng.integers(authors, size=len(own))
        wrote[paper, np.where(rng.random(len(own)) < _GUESTS, any_field, own)] = 1.0
    X = _counted(wrote @ rates / wrote.sum(axis=1, keepdims=True), rng)
    return _Texts(X, wrote, {"author": wrote, "field": np.eye(_FIELDS)[of]})


def _rates(shifts: Array) -> Array:
    """Return the rates (g, w) of words, which follow Zipf's law but for shifts of logarithms."""
    rates = np.exp(shifts) / np.arange(10, _WORDS + 10)
    return np.asarray(rates / rates.sum(axis=1, keepdims=True))


def _counted(rates: Array, rng: np.random.Generator) -> Any:
    """Return tf-idf rows of texts with Poisson counts of words."""
    lengths = _LENGTH * rng.lognormal(0.0, 0.5, size=(len(rates), 1))
    return csr_array(
        TfidfTransformer(sublinear_tf=True).fit_transform(rng.poisson(lengths * rates))
    )


def _rank(classes: int) -> Figure:
    X, y = (part[:_FEW_ROWS] for part in load_digits(n_class=classes, return_X_y=True))
    line, marks = {"classes": classes}, np.eye(classes)[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some axes are free, and graphs of few classes have parts
        model = ColoredMVU(classes + 1, target="factor", standardize=False, refine=False)
        line["colored"] = _axes(model.fit(X, marks).eigenvalues_, _RANK)
        plain = ColoredMVU(classes + 1, standardize=False, refine=False)
        line["plain"] = _axes(plain.fit(X).eigenvalues_, _RANK)
        graph = _graph(X)
    start = model.embedding_
    noise = np.random.default_rng(0).normal(size=start.shape)
    objective = _AtMost(graph, _kernel(marks), model.scales_)
    places = climb(objective, start + 0.01 * start.std() * noise, _STEPS, 1e-6).Y
    variances = np.linalg.svd(places - places.mean(axis=0))[1] ** 2
    return {**line, "at most": _axes(variances, _LEAST_VARIANCE)}


def _axes(variances: Array, least: float) -> int:
    """Return how many variances are a larger share of the largest one than the least."""
    return int((variances > least * variances.max()).sum())


def _graph(X: Array) -> NeighbourGraph:
    return neighbour_graph(X, NearestRows.among(X, _NEIGHBOURS).of_own_rows())


def _kernel(factor: Array) -> FactorKernel:
    return FactorKernel(factor - factor.mean(axis=0))


@dataclass(frozen=True, eq=False)
class _AtMost(CoordinateObjective):
    """F with distances that may shrink at no cost."""

    def at(self, Y: Array) -> tuple[float, float, Array]:
        """Return F at Y (n, q), the sum of its terms, and its gradient."""
        graph, apart = self.graph, [self.graph.along(y) for y in Y.T]
        lengths = sum(each**2 for each in apart)
        least = replace(graph, squared=np.minimum(graph.squared, lengths))
        return CoordinateObjective(least, self.side, self.scales).at(Y)


def _bounds(data: str, nu: float) -> Figure:
    """Return the figures of both kinds of refinement at one weight of the distances."""
    is_roll = data == "roll"
    roll = make_swiss_roll(1000, random_state=0)
    X, y = roll if is_roll else load_digits(return_X_y=True)
    graph, marks = _graph(X), y[:, None] if is_roll else np.eye(10)[y]
    start = ColoredMVU(target="factor", standardize=False, refine=False, nu=nu).fit(X, marks)
    side, line = _kernel(marks), {"data": data, "nu": nu}
    kinds: dict[str, type[CoordinateObjective]] = {"equal": CoordinateObjective, "at most": _AtMost}
    for name, kind in kinds.items():
        places = climb(kind(graph, side, start.scales_), start.embedding_, 5000).Y
        nearest = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(places).kneighbors()[1]
        line[f"{name}: same class"] = np.nan if is_roll else _alike(marks, marks, nearest)
        line[f"{name}: distances"] = _scaled_error(graph, places)
    return line


def _scaled_error(graph: NeighbourGraph, places: Array) -> float:
    """Return the relative error of the lengths of edges after the best common scale."""
    lengths = np.linalg.norm(places[graph.heads] - places[graph.tails], axis=1)
    distances = np.sqrt(graph.squared)
    scale = np.vdot(lengths, distances) / np.vdot(lengths, lengths)
    return float(np.linalg.norm(scale * lengths - distances) / np.linalg.norm(distances))


_DATA: dict[str, Callable[[], _Texts]] = {
    "digits": _digits,
    "newsgroups": _newsgroups,
    "papers": _papers,
}
