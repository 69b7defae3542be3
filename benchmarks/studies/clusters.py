"""Agreement (NMI) of unsupervised, alternative and semi-supervised clusters with known labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.measure import Figure, Run, timed
from benchmarks.registry import figure
from flows.builtin import ingest
from flows.runs.clustering import label_agreement
from ism_dask import (
    AlternativeIKDR,
    ComponentsWarning,
    SemiSupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.estimators.clusterers import ClusteringIKDR
from ism_dask.kernels import Gaussian, as_kernel
from storage import Dataset

_SEEDS = range(5)
_CLUSTERS = {"wine": 3, "cancer": 2, "face": 20}
_MUST = {"wine": 0.87, "cancer": 0.80, "face": 0.93}
# The NMI in Tables 4 and 5 of the paper, by kernel and data set.
_PUBLISHED: dict[str, dict[str, float]] = {
    "gaussian": {"wine": 0.86, "cancer": 0.80, "face": 0.94},
    "polynomial": {"wine": 0.84, "cancer": 0.79, "face": 0.94},
    "linear": {"wine": 0.85, "cancer": 0.80, "face": 0.93},
    "squared": {"wine": 0.85, "cancer": 0.79, "face": 0.95},
    "multiquadric": {"wine": 0.88, "cancer": 0.84, "face": 0.92},
}
# The gaussian kernel of the paper, from which the published figures come.
_GAUSSIAN = Gaussian("median")
_NEAR = 0.02
_KNOWN_SHARE = 0.1


@figure
def clusters() -> Figure:
    """Unsupervised NMI on Wine, Cancer and Face, every kernel of the paper; means over 5 seeds."""
    table = [_line(name, kernel) for kernel in _PUBLISHED for name in _CLUSTERS]
    gaussian_lines = [line for line in table if line["kernel"] == "gaussian"]
    return {
        "table": table,
        "must": "gaussian: Wine 0.87, Cancer 0.80, Face 0.93; others at most 0.02 below published",
        "met": all(line["nmi"] >= _MUST[line["data"]] for line in gaussian_lines)
        and all(line["nmi"] >= line["published"] - _NEAR for line in table),
    }


def _line(name: str, kernel: str) -> Figure:
    data, k = ingest(name), _CLUSTERS[name]
    resolved = _GAUSSIAN if kernel == "gaussian" else as_kernel(kernel)
    models = [UnsupervisedIKDR(k, kernel=resolved, random_state=seed) for seed in _SEEDS]
    runs = [_fitted(model, data) for model in models]
    scores = [label_agreement(data.y, run.value.labels_) for run in runs]
    return {
        "data": name,
        "kernel": kernel,
        "nmi": float(np.mean(scores)),
        "least": min(scores),
        "most": max(scores),
        "published": _PUBLISHED[kernel][name],
        "rounds": len(runs[0].value.rounds_),
        "settled": bool(runs[0].value.converged_),
        "seconds": float(np.median([run.seconds for run in runs])),
    }


@figure
def clusters60k() -> Figure:
    """Unsupervised, MNIST's 60,000 training images, q = k = 10, gaussian, streamed from disk."""
    data = ingest("mnist", "train")
    run = _fitted(UnsupervisedIKDR(10, kernel=_GAUSSIAN, random_state=0), data)
    model = run.value
    return {
        "seconds": run.seconds,
        "nmi": label_agreement(data.y, model.labels_),
        "rounds": len(model.rounds_),
        "settled": bool(model.converged_),
        "engine": model.engine_,
        "residual": model.residual_,
        "must": "5 minutes and 3 GB of all processes",
        "peak_limit_gb": 3.0,
        "met": run.seconds <= 300,
    }


@figure
def guided() -> Figure:
    """Face, avoiding the identities; Wine, given the classes of a random tenth of its rows."""
    faces, wine = ingest("face"), ingest("wine")
    identity, pose = (np.asarray(faces.labels[name]) for name in ("identity", "pose"))
    others = [
        _fitted(AlternativeIKDR(4, kernel=_GAUSSIAN, random_state=s), faces, identity).value
        for s in _SEEDS
    ]
    y = np.asarray(wine.y)
    alone = [
        _fitted(UnsupervisedIKDR(3, kernel=_GAUSSIAN, random_state=s), wine).value.labels_
        for s in _SEEDS
    ]
    scores = {
        "face_nmi_with_pose": _mean_agreement(pose, [model.labels_ for model in others]),
        "face_nmi_with_identity": _mean_agreement(identity, [model.labels_ for model in others]),
        "wine_nmi_without": _mean_agreement(y, alone),
    }
    with_scores_by_seed = [_nmi_given_scores(wine, y, seed) for seed in range(20)]
    with_scores = float(np.mean(with_scores_by_seed[: len(_SEEDS)]))
    return {
        **scores,
        "wine_nmi_with_scores": with_scores,
        "wine_nmi_with_scores_twenty_draws": float(np.mean(with_scores_by_seed)),
        "must": "pose 0.45, identity at most 0.06; Wine with scores above Wine without",
        "met": scores["face_nmi_with_pose"] >= 0.45
        and scores["face_nmi_with_identity"] <= 0.06
        and with_scores > scores["wine_nmi_without"],
    }


def _mean_agreement(reference: Any, clusterings: list[Any]) -> float:
    return float(np.mean([label_agreement(reference, labels) for labels in clusterings]))


def _nmi_given_scores(wine: Dataset, y: Any, seed: int) -> float:
    count = round(_KNOWN_SHARE * len(y))
    labelled = np.random.default_rng(seed).choice(len(y), count, replace=False)
    scores = np.full(len(y), np.nan)
    scores[labelled] = y[labelled]
    model = SemiSupervisedIKDR(3, kernel=_GAUSSIAN, target="classes", random_state=seed)
    return label_agreement(y, _fitted(model, wine, scores).value.labels_)


def _fitted(model: ClusteringIKDR, data: Any, y: Any = None) -> Run[ClusteringIKDR]:
    with warnings.catch_warnings():
        # The table has a column for rounds that do not converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ComponentsWarning)
        return timed(lambda: model.fit(data, y))
