"""Measure the paper's figures: alternative clusters, seconds against rows, accuracy against q."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from sklearn.preprocessing import normalize, scale
from sklearn.svm import SVC

from benchmarks.paper.cluster_pictures import cluster_means, segmented, whole_picture
from benchmarks.paper.methods import (
    PAPER_GAUSSIAN,
    SOLVERS,
    Fitted,
    Request,
    fit_kernel,
    fit_method,
    rows_in_memory,
    sampled_rows,
    timed_fit,
)
from benchmarks.paper.series import Result, Series, is_over_cap
from benchmarks.paper.settings import DELTA, ISM_PUBLISHED, METHODS, RIVALS, PaperSettings
from flows.builtin import ingest
from flows.runs.clustering import label_agreement
from ism_dask import AlternativeIKDR, UnsupervisedIKDR
from ism_dask._types import Array
from ism_dask.estimators.clusterers import ClusteringIKDR
from ism_dask.kernels import Kernel, Polynomial
from ism_dask.solvers import ISM, Solver
from ism_dask.status import Status
from storage import Dataset

# The most seconds of a fit. Under the polynomial of the paper the faces do not settle in minutes,
# and twice the rows take an exact engine at least 4 times as long: O(n^2).
_SECONDS, _GROWTH = 60.0, 4.0
_MNIST = "mnist"
# Figure of few features: the number of training rows of the test images, and those of features.
# LDA has at most as many components as classes less one.
FEW_SPLIT, FEW_ROWS, _COUNTS, _LDA_COUNTS = "test", 5000, (1, 2, 3, 5, 9, 10, 20), (1, 2, 3, 5, 9)
# Figure 1b: numbers of rows, and the number of new features in the paper.
GROWTH_SPLIT, _ROWS, _Q = "train", (500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000), 20
_CONVERGED = Status.CONVERGED.value
# Fits a model to rows X (n, d) with classes y (n,).
Fit: TypeAlias = Callable[[Request, Array, Array], Fitted]


def features(settings: PaperSettings) -> Iterator[Series]:
    """Return the lines of accuracy against the number of new features, one for each method."""
    methods: Mapping[str, Fit] = {
        **{name.upper(): partial(fit_method, name) for name in ("pca", "lda", "nca")},
        "ISM, the paper's settings": partial(fit_method, ISM_PUBLISHED),
        "ISM, the default": lambda request, X, y: fit_kernel(
            replace(request, kernel=""), X, y, ISM()
        ),
    }
    return (
        Series(
            part="features",
            subject={"line": line},
            measure=partial(_accuracy, settings, fit),
            steps=_LDA_COUNTS if line == "LDA" else _COUNTS,
            # A method over its time limit still returns features, so the line goes on.
            ends_with=lambda _: False,
        )
        for line, fit in methods.items()
    )


def _accuracy(settings: PaperSettings, fit: Fit, count: int) -> Result:
    """Learn `count` features, and measure the accuracy of an SVM on the test rows."""
    X, y = rows_in_memory(_MNIST, FEW_SPLIT)
    train, test = sampled_rows(_MNIST, FEW_SPLIT, FEW_ROWS, settings.seed)
    request = Request(count, "gaussian", min(_SECONDS, settings.cap), settings.seed)
    fitted = fit(request, X[train], y[train])
    classifier = SVC(kernel="rbf").fit(fitted.model.transform(X[train]), y[train])
    score = classifier.score(fitted.model.transform(X[test]), y[test])
    return {"count": count, "score": float(score), **fitted.facts}


def figure_1b(settings: PaperSettings) -> Iterator[Series]:
    """Return the lines of seconds against rows: of solvers, and of linear-time engines."""
    others = {f"{METHODS[name].published.upper()}, all pairs": name for name in RIVALS}
    ism = ISM(tol=DELTA)
    # By title: the kernel, the engine, and the solver.
    lines: Mapping[str, tuple[str, str, Solver]] = {
        "ISM, all pairs": ("polynomial", "exact", ism),
        **{title: ("polynomial", "exact", SOLVERS[name]) for title, name in others.items()},
        "ISM, landmarks (polynomial)": ("polynomial", "landmarks", ism),
        "ISM, landmarks (gaussian)": ("gaussian", "landmarks", ism),
    }
    return (
        Series(
            part="figure-1b",
            subject={"line": title, "kernel": kernel},
            measure=partial(
                _seconds, settings, kernel, partial(fit_kernel, solver=solver, engine=engine)
            ),
            steps=_ROWS,
            # The time of the other engines grows with n, so that they can take all rows.
            ends_with=_takes_too_long if engine == "exact" else is_over_cap,
        )
        for title, (kernel, engine, solver) in lines.items()
    )


def _seconds(settings: PaperSettings, kernel: str, fit: Fit, rows: int) -> Result:
    """Fit W to this number of rows."""
    X, y = rows_in_memory(_MNIST, GROWTH_SPLIT)
    chosen, _ = sampled_rows(_MNIST, GROWTH_SPLIT, rows, settings.seed)
    request = Request(_Q, kernel, min(_SECONDS, settings.cap), settings.seed)
    return {"rows": rows, **fit(request, X[chosen], y[chosen]).facts}


def _takes_too_long(result: Result) -> bool:
    """Return whether twice the rows would take too long."""
    return is_over_cap(result) or _GROWTH * result["seconds"] > _SECONDS


@dataclass(frozen=True)
class Subject:
    """A data set of Figure 1a: its clusters, and those that avoid what is known."""

    title: str  # of the clusters
    alternative: str  # of those that avoid what is known
    n_clusters: int
    n_alternative: int
    avoid: str  # the label to avoid; `title` stands for the clusters themselves
    picture: Callable[[Dataset, ClusteringIKDR], bytes]  # draws the clusters as a PNG


_SUBJECTS: Mapping[str, Subject] = {
    "flower": Subject("2 segments", "2 others", 2, 2, "2 segments", segmented),
    "face": Subject("20 clusters", "4 others", 20, 4, "identity", cluster_means),
}
# The kernels by name, and whether standardised rows are scaled to length 1 for them.
_VARIANTS: Mapping[str, tuple[Kernel, bool]] = {
    "gaussian": (PAPER_GAUSSIAN, False),
    "polynomial": (Polynomial(), False),
    "unit polynomial": (Polynomial(), True),
}


def figure_1a(settings: PaperSettings) -> Iterator[Series]:
    """Return the alternative clusterings of each data set, under each kernel."""
    return (
        Series(
            part="figure-1a",
            subject={"data": data, "kernel": kernel},
            measure=partial(_alternatives, settings, data, kernel),
        )
        for data in _SUBJECTS
        for kernel in _VARIANTS
    )


def _alternatives(settings: PaperSettings, name: str, kernel: str, _step: int) -> Result:
    """Find clusters, then alternative ones; return how the fits ended, and their pictures."""
    subject, data = _SUBJECTS[name], ingest(name)
    chosen, unit_rows = _VARIANTS[kernel]
    rows = data.X.read(0, len(data.X))
    rows = normalize(scale(rows)) if unit_rows else rows

    def fit(estimator: type[ClusteringIKDR], k: int, avoid: Array | None = None) -> Fitted:
        model = estimator(
            k,
            kernel=chosen,
            solver=ISM(max_seconds=min(_SECONDS, settings.cap)),
            standardize=not unit_rows,
            random_state=settings.seed,
        )
        return timed_fit(model, rows, avoid)

    first = fit(UnsupervisedIKDR, subject.n_clusters)
    labels = data.labels or {subject.title: first.model.labels_}
    other = fit(AlternativeIKDR, subject.n_alternative, labels[subject.avoid])
    fits = [
        _record(subject.title, first, data.labels),
        _record(subject.alternative, other, labels),
    ]
    for record, fitted in zip(fits, (first, other), strict=True):
        record["png"] = base64.b64encode(subject.picture(data, fitted.model)).decode()
    endings = [record["ended"] for record in fits]
    return {
        "seconds": first.seconds + other.seconds,
        "status": next((each for each in endings if each != _CONVERGED), _CONVERGED),
        "fits": fits,
        "original": base64.b64encode(whole_picture(data)).decode(),
    }


def _record(name: str, fitted: Fitted, labels: Mapping[str, Array]) -> Result:
    """Return what is stored of a fit, with its agreement (NMI) with each of the labels."""
    model = fitted.model
    ended = model.status_.value
    if ended == _CONVERGED and not model.converged_:
        ended = f"not settled in {len(model.rounds_)} rounds"
    agreement = {each: label_agreement(y, model.labels_) for each, y in labels.items()}
    return {"clusters": name, "nmi": agreement, "seconds": fitted.seconds, "ended": ended}
