"""Clusters found by the other paradigms, against what people say of the rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

from benchmarks.measure import Figure, Run, say, timed
from ism_dask import (
    AlternativeIKDR,
    ComponentsWarning,
    SemiSupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.kernels import Gaussian, as_kernel
from storage import Dataset, ingest

_SEEDS = range(5)
_CLUSTERS = {"wine": 3, "cancer": 2, "face": 20}
_MUST = {"wine": 0.87, "cancer": 0.80, "face": 0.93}
# Tables 4 and 5 of the paper.
_PUBLISHED: dict[str, dict[str, float]] = {
    "gaussian": {"wine": 0.86, "cancer": 0.80, "face": 0.94},
    "polynomial": {"wine": 0.84, "cancer": 0.80, "face": 0.94},
    "linear": {"wine": 0.85, "cancer": 0.80, "face": 0.93},
    "squared": {"wine": 0.85, "cancer": 0.79, "face": 0.95},
    "multiquadric": {"wine": 0.88, "cancer": 0.84, "face": 0.92},
}
# Of the paper, as are the figures.
_GAUSSIAN = Gaussian("median")
_NEAR = 0.02
_KNOWN_SHARE = 0.1


def nmi(known: Any, found: Any) -> float:
    """Return the normalised mutual information by the geometric mean, as the paper has it."""
    return float(normalized_mutual_info_score(known, found, average_method="geometric"))


def clusters() -> Figure:
    """Unsupervised NMI of Wine, Cancer and Face, every kernel of the paper; means of 5 seeds."""
    table = [_line(name, kernel) for kernel in _PUBLISHED for name in _CLUSTERS]
    asked = [line for line in table if line["kernel"] == "gaussian"]
    return {
        "table": table,
        "must": "gaussian: Wine 0.87, Cancer 0.80, Face 0.93; others at most 0.02 below published",
        "met": all(line["nmi"] >= _MUST[line["data"]] for line in asked)
        and all(line["nmi"] >= line["published"] - _NEAR for line in table),
    }


def _line(name: str, kernel: str) -> Figure:
    data, k = ingest(name), _CLUSTERS[name]
    known = _GAUSSIAN if kernel == "gaussian" else as_kernel(kernel)
    models = [UnsupervisedIKDR(k, kernel=known, random_state=seed) for seed in _SEEDS]
    runs = [_fitted(model, data) for model in models]
    found = [nmi(data.y, run.value.labels_) for run in runs]
    return {
        "data": name,
        "kernel": kernel,
        "nmi": float(np.mean(found)),
        "least": min(found),
        "most": max(found),
        "published": _PUBLISHED[kernel][name],
        "rounds": len(runs[0].value.rounds_),
        "settled": bool(runs[0].value.converged_),
        "seconds": float(np.median([run.seconds for run in runs])),
    }


def clusters10k() -> Figure:
    """Unsupervised, MNIST's 10,000 test images, q = k = 10, gaussian; means of 5 seeds."""
    data = ingest("mnist", "test")
    runs = []
    for seed in _SEEDS:
        runs.append(_fitted(UnsupervisedIKDR(10, kernel=_GAUSSIAN, random_state=seed), data))
        say(f"seed {seed}: {runs[-1].seconds:.1f} s")
    found = [nmi(data.y, run.value.labels_) for run in runs]
    seconds = float(np.median([run.seconds for run in runs]))
    return {
        **_mean_of(found),
        "seconds": seconds,
        "rounds": len(runs[0].value.rounds_),
        "engine": runs[0].value.engine_,
        "residual": runs[0].value.residual_,
        "must": "NMI 0.47 in 30 s (published: 0.47 in 1.8 h on twenty cores)",
        "met": bool(np.mean(found) >= 0.47 and seconds <= 30),
    }


def clusters60k() -> Figure:
    """Unsupervised, MNIST's 60,000 training images, q = k = 10, gaussian, read in a stream."""
    data = ingest("mnist", "train")
    run = _fitted(UnsupervisedIKDR(10, kernel=_GAUSSIAN, random_state=0), data)
    model = run.value
    return {
        "seconds": run.seconds,
        "nmi": nmi(data.y, model.labels_),
        "rounds": len(model.rounds_),
        "settled": bool(model.converged_),
        "engine": model.engine_,
        "residual": model.residual_,
        "must": "5 minutes and 3 GB of all processes",
        "peak_limit_gb": 3.0,
        "met": run.seconds <= 300,
    }


def guided() -> Figure:
    """Face with its identities to avoid; Wine with the class of a tenth of its rows, at random."""
    faces, wine = ingest("face"), ingest("wine")
    who, pose = (np.asarray(faces.labels[name]) for name in ("identity", "pose"))
    others = [
        _fitted(AlternativeIKDR(4, kernel=_GAUSSIAN, random_state=s), faces, who).value
        for s in _SEEDS
    ]
    y = np.asarray(wine.y)
    alone = [
        _fitted(UnsupervisedIKDR(3, kernel=_GAUSSIAN, random_state=s), wine).value.labels_
        for s in _SEEDS
    ]
    found = {
        "face_nmi_with_pose": _mean(pose, [model.labels_ for model in others]),
        "face_nmi_with_identity": _mean(who, [model.labels_ for model in others]),
        "wine_nmi_without": _mean(y, alone),
    }
    helped = [_scored(wine, y, seed) for seed in range(20)]
    with_scores = float(np.mean(helped[: len(_SEEDS)]))
    return {
        **found,
        "wine_nmi_with_scores": with_scores,
        "wine_nmi_with_scores_twenty_draws": float(np.mean(helped)),
        "must": "pose 0.45, identity at most 0.06; Wine with scores above Wine without",
        "met": found["face_nmi_with_pose"] >= 0.45
        and found["face_nmi_with_identity"] <= 0.06
        and with_scores > found["wine_nmi_without"],
    }


def _mean(known: Any, found: list[Any]) -> float:
    return float(np.mean([nmi(known, labels) for labels in found]))


def _scored(wine: Dataset, y: Any, seed: int) -> float:
    count = round(_KNOWN_SHARE * len(y))
    known = np.random.default_rng(seed).choice(len(y), count, replace=False)
    scores = np.full(len(y), np.nan)
    scores[known] = y[known]
    model = SemiSupervisedIKDR(3, kernel=_GAUSSIAN, target="classes", random_state=seed)
    return nmi(y, _fitted(model, wine, scores).value.labels_)


def _mean_of(found: list[float]) -> Figure:
    return {"nmi": float(np.mean(found)), "least": min(found), "most": max(found)}


def _fitted(model: ClusteringIKDR, data: Dataset, y: Any = None) -> Run[ClusteringIKDR]:
    with warnings.catch_warnings():
        # Where rounds do not settle, the table says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ComponentsWarning)
        return timed(lambda: model.fit(data, y))
