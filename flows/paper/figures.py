"""Measure the paper's figures: alternative clusters, seconds against rows, accuracy against q."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from sklearn.preprocessing import normalize, scale
from sklearn.svm import SVC

from flows.paper.methods import (
    PAPER_GAUSSIAN,
    Request,
    fit_facts,
    fit_kernel,
    fit_method,
    rows_in_memory,
    sampled_rows,
)
from flows.paper.series import Result, Series, is_over_cap
from flows.paper.settings import DELTA, ISM_PUBLISHED, METHODS, OTHER_SOLVERS, TablesSettings
from flows.progress.watching import ProgressShare
from flows.runs.clustering import cluster_pictures, label_agreement, whole_picture
from flows.runs.data import Array, ensure_stored
from flows.runs.fitting import FittedModel, timed_fit
from ism_dask import AlternativeIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.kernels import Kernel, Polynomial
from ism_dask.solvers import ISM, Solver, as_solver
from ism_dask.status import Status

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
Fit: TypeAlias = Callable[[Request, Array, Array], FittedModel[Any]]


def features(settings: TablesSettings) -> Iterator[Series]:
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
            source=(_MNIST, FEW_SPLIT),
            effort=float(FEW_ROWS),
            measure=partial(_accuracy, settings, fit),
            steps=_LDA_COUNTS if line == "LDA" else _COUNTS,
            # A method over its time limit still returns features, so the line goes on.
            ends_with=lambda _: False,
        )
        for line, fit in methods.items()
    )


def _accuracy(settings: TablesSettings, fit: Fit, count: int, part: ProgressShare) -> Result:
    """Learn `count` features, and measure the accuracy of an SVM on the test rows."""
    X, y = rows_in_memory(_MNIST, FEW_SPLIT)
    train, test = sampled_rows(_MNIST, FEW_SPLIT, FEW_ROWS, settings.seed)
    request = Request(count, "gaussian", min(_SECONDS, settings.cap), settings.seed)
    with part.lasting(0.0, f"{count} features"):
        fitted = fit(request, X[train], y[train])
        classifier = SVC(kernel="rbf").fit(fitted.model.transform(X[train]), y[train])
        score = classifier.score(fitted.model.transform(X[test]), y[test])
    return {"count": count, "score": float(score), **fit_facts(fitted)}


def figure_1b(settings: TablesSettings) -> Iterator[Series]:
    """Return the lines of seconds against rows: of solvers, and of linear-time engines."""
    others = {f"{METHODS[name].published.upper()}, all pairs": name for name in OTHER_SOLVERS}
    ism = ISM(tol=DELTA)
    # By title: the kernel, the engine, and the solver.
    lines: Mapping[str, tuple[str, str, Solver]] = {
        "ISM, all pairs": ("polynomial", "exact", ism),
        **{title: ("polynomial", "exact", as_solver(name)) for title, name in others.items()},
        "ISM, landmarks (polynomial)": ("polynomial", "landmarks", ism),
        "ISM, landmarks (gaussian)": ("gaussian", "landmarks", ism),
    }
    return (
        Series(
            part="figure-1b",
            subject={"line": title, "kernel": kernel},
            source=(_MNIST, GROWTH_SPLIT),
            effort=2000.0,
            measure=partial(
                _seconds, settings, kernel, partial(fit_kernel, solver=solver, engine=engine)
            ),
            steps=_ROWS,
            # The time of the other engines grows with n, so that they can take all rows.
            ends_with=_takes_too_long if engine == "exact" else is_over_cap,
        )
        for title, (kernel, engine, solver) in lines.items()
    )


def _seconds(
    settings: TablesSettings, kernel: str, fit: Fit, rows: int, part: ProgressShare
) -> Result:
    """Fit W to this number of rows."""
    X, y = rows_in_memory(_MNIST, GROWTH_SPLIT)
    chosen, _ = sampled_rows(_MNIST, GROWTH_SPLIT, rows, settings.seed)
    request = Request(_Q, kernel, min(_SECONDS, settings.cap), settings.seed)
    with part.lasting(0.0, f"{rows:,} rows"):
        fitted = fit(request, X[chosen], y[chosen])
    return {"rows": rows, **fit_facts(fitted)}


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
    picture: str  # the kind of picture that shows clusters: a name of `cluster_pictures`


_SUBJECTS: Mapping[str, Subject] = {
    "flower": Subject("2 segments", "2 others", 2, 2, "2 segments", "segments"),
    "face": Subject("20 clusters", "4 others", 20, 4, "identity", "clusters"),
}
# The kernels by name, and whether standardised rows are scaled to length 1 for them.
_VARIANTS: Mapping[str, tuple[Kernel, bool]] = {
    "gaussian": (PAPER_GAUSSIAN, False),
    "polynomial": (Polynomial(), False),
    "unit polynomial": (Polynomial(), True),
}


def figure_1a(settings: TablesSettings) -> Iterator[Series]:
    """Return the alternative clusterings of each data set, under each kernel."""
    return (
        Series(
            part="figure-1a",
            subject={"data": data, "kernel": kernel},
            source=(data, None),
            effort=1000.0,
            measure=partial(_alternatives, settings, data, kernel),
        )
        for data in _SUBJECTS
        for kernel in _VARIANTS
    )


def _alternatives(
    settings: TablesSettings, name: str, kernel: str, _step: int, part: ProgressShare
) -> Result:
    """Find clusters, then alternative ones; return how the fits ended, and their pictures."""
    subject, data = _SUBJECTS[name], ensure_stored(name, None)
    chosen, unit_rows = _VARIANTS[kernel]
    rows = data.X.read(0, len(data.X))
    rows = normalize(scale(rows)) if unit_rows else rows

    def fit(
        estimator: type[ClusteringIKDR], k: int, avoid: Array | None = None
    ) -> FittedModel[Any]:
        model = estimator(
            k,
            kernel=chosen,
            solver=ISM(max_seconds=min(_SECONDS, settings.cap)),
            standardize=not unit_rows,
            random_state=settings.seed,
        )
        return timed_fit(model, rows, avoid)

    with part.lasting(0.0, "alternative clusters"):
        first = fit(UnsupervisedIKDR, subject.n_clusters)
        labels = data.labels or {subject.title: first.model.labels_}
        other = fit(AlternativeIKDR, subject.n_alternative, labels[subject.avoid])
    fits = [
        _record(subject.title, first, data.labels),
        _record(subject.alternative, other, labels),
    ]
    for record, fitted in zip(fits, (first, other), strict=True):
        picture = cluster_pictures(data, fitted.model).get(subject.picture, b"")
        record["png"] = base64.b64encode(picture).decode()
    endings = [record["ended"] for record in fits]
    return {
        "seconds": first.seconds + other.seconds,
        "status": next((each for each in endings if each != _CONVERGED), _CONVERGED),
        "fits": fits,
        "original": base64.b64encode(whole_picture(data)).decode(),
    }


def _record(name: str, fitted: FittedModel[Any], labels: Mapping[str, Array]) -> Result:
    """Return what is stored of a fit, with its agreement (NMI) with each of the labels."""
    model: Any = fitted.model
    ended = model.status_.value
    if ended == _CONVERGED and not model.converged_:
        ended = f"not settled in {len(model.rounds_)} rounds"
    nmi = {each: label_agreement(y, model.labels_) for each, y in labels.items()}
    return {"clusters": name, "nmi": nmi, "seconds": fitted.seconds, "ended": ended}
