"""Cluster all rows of a data set and save labels and model as a run, without Prefect."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import train_test_split

from flows.errors import SettingsError
from flows.progress.watching import ProgressShare, progress_note, run_step
from flows.results.runs import ClusterResult, SeparatingColumn, largest
from flows.runs.data import (
    Array,
    check_columns,
    describe_rows,
    read_rows,
    row_batches,
    store_for_run,
    with_label,
)
from flows.runs.fitting import (
    FittedModel,
    described_run,
    fit_estimator,
    fitted_w,
    save_fitted,
    shared_parameters,
)
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.settings.fields import split_names
from flows.settings.unsupervised import SCORES_SHARE, ClusterSettings, run_to_avoid
from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.clusterers import ClusteringIKDR
from ism_dask.gamma.targets import class_dependence
from ism_dask.words import count_noun
from storage import Dataset, load_model
from storage.tables.schema import CATEGORY, TableSchema

# A result lists this many columns that tell the clusters apart.
_SEPARATING = 10


def cluster_and_save(settings: ClusterSettings, data: Dataset) -> ClusterResult:
    """Cluster the rows of a stored data set, and save the run."""
    k = count_clusters(settings, data)
    check_columns(settings, data)
    if weights := data.info.weights:
        progress_note(f"the weights {weights!r} do not count: clusters have each row once")
    kernel = settings.kernel.replace("_", "-")
    run = settings.run or f"{data.info.folder}-{settings.paradigm}-{kernel}-k{k}"
    y = PARADIGMS[settings.paradigm].target(settings, data)
    # A digest of y: the labels to avoid may be the clusters of a run, and another run of the same
    # name may have replaced it since.
    digest = "" if y is None else sha256(np.asarray(y).tobytes()).hexdigest()
    identity = {"data_hash": data.data_hash, "k": k, "y": digest}
    about = f"{describe_rows(data)}; clusters k: {k}"
    size = {"n_clusters": k}
    with resumable_run(
        run, ClusterResult.command, settings, identity, size=size, about=about
    ) as this:
        fitted = fit_on_cluster(settings, this, partial(_fitted, settings, data, k, y))
        model, labels = fitted.model, fitted.model.labels_
        codes = {name: y for name, y in data.labels.items() if y.dtype.kind in "ui"}
        result = ClusterResult(
            paradigm=settings.paradigm,
            n_clusters=int(model.n_clusters),
            nmi={name: label_agreement(y, labels) for name, y in codes.items()},
            sizes=tuple(np.bincount(labels, minlength=model.n_clusters).tolist()),
            separating=separating_columns(fitted, data),
            rounds=tuple(model.rounds_),
            **vars(described_run(run, settings, data, len(model.components_))),
            **vars(fitted_w(fitted, settings, data)),
        )
        of_run: dict[str, Any] = {"check": this.lease.check, "labels": labels}
        return save_fitted(result, fitted, settings, data, labels, **of_run)[0]


def run_cluster(settings: ClusterSettings) -> ClusterResult:
    """Cluster all rows of a data set and save labels and model as a run."""
    stored = run_step(f"ingest {settings.dataset}", store_for_run, settings)
    return run_step("cluster rows", cluster_and_save, *stored)


def count_clusters(settings: ClusterSettings, data: Dataset) -> int:
    """Return the number of clusters k: that of the settings, by default the number of classes."""
    k, n, y = settings.n_clusters, len(data.X), data.y
    if k is None and settings.label is None and (y is None or y.dtype.kind not in "ui"):
        raise SettingsError(f"{data.name} has no classes to count: say how many clusters, -k")
    if k is None or settings.label is not None:
        # A label that does not exist is an error even if its classes need not be counted.
        classes = len(with_label(data, settings.label).class_sizes)
        k = classes if k is None else k
    if k >= n:
        raise SettingsError(
            f"`n_clusters` is {k}; {data.name} has {n} rows, expected fewer", "n_clusters"
        )
    return k


def label_agreement(known: Any, found: Any) -> float:
    """Return the normalised mutual information of two labellings, by the geometric mean.

    The paper normalises in this way, too.
    """
    with warnings.catch_warnings():
        # Before 1.8, scikit-learn takes many clusters for numbers.
        warnings.filterwarnings("ignore", message="The number of unique classes")
        return float(normalized_mutual_info_score(known, found, average_method="geometric"))


def separating_columns(
    fitted: FittedModel[ClusteringIKDR], data: Dataset
) -> tuple[SeparatingColumn, ...]:
    """Return the columns of which the largest share of the variance lies between the clusters."""
    model = fitted.model
    sums = np.zeros((model.n_clusters, data.X.shape[1]))
    for start, rows in row_batches(fitted.rows):
        standard = (rows - model.mean_) / model.scale_
        sums += np.eye(model.n_clusters)[model.labels_[start : start + len(rows)]].T @ standard
    sizes = np.bincount(model.labels_, minlength=model.n_clusters)
    # The standardised columns have mean 0 and variance 1.
    shares = (sums**2 / np.maximum(sizes, 1)[:, None]).sum(axis=0) / len(data.X)
    table = data.info.table
    features = () if table is None else TableSchema.from_json(table["schema"]).features
    texts = [each for each in features if each.kind == CATEGORY]
    column_of = {level: each.name for each in texts for level in each.encoded_names}
    return tuple(
        SeparatingColumn(feature=name, share=min(share, 1.0), column=column_of.get(name, ""))
        for name, share in largest(data, shares, _SEPARATING)
    )


def _fitted(
    settings: ClusterSettings, data: Dataset, k: int, y: Any
) -> FittedModel[ClusteringIKDR]:
    rows = read_rows(data.X, settings)
    weight = {} if settings.mu is None else {"mu": settings.mu}
    model = PARADIGMS[settings.paradigm].estimator(
        k,
        settings.n_components,
        outer_tol=settings.outer_tol,
        max_outer=settings.max_outer,
        **weight,
        **shared_parameters(settings),
    )
    return fit_estimator(model, rows, y, ProgressShare(stop=0.95))


def _partial_labels(settings: ClusterSettings, data: Dataset) -> Array:
    """Draw the same share of rows from each class; return their classes, and -1 for other rows."""
    y = with_label(data, settings.label).classes
    share = SCORES_SHARE if settings.scores_share is None else settings.scores_share
    if share == 1:
        return y
    rows, scores = np.arange(len(y)), np.full(len(y), -1)
    try:
        scored, _ = train_test_split(rows, train_size=share, stratify=y, random_state=settings.seed)
    except ValueError as error:
        raise SettingsError(
            f"`scores_share` is {share:g}, which does not leave a row with and one without a score "
            f"in each class of {len(y)} rows: {error}",
            "scores_share",
        ) from error
    scores[scored] = y[scored]
    return scores


def _labels_to_avoid(settings: ClusterSettings, data: Dataset) -> Array:
    """Return the labels to avoid (n,), or several side by side (n, t)."""
    names = split_names(settings.avoid)
    columns = [_label_to_avoid(name, data) for name in names or (settings.avoid,)]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def _label_to_avoid(name: str | None, data: Dataset) -> Array:
    """Return a label to avoid (n,): a label of the data set, or the clusters of a run."""
    run = run_to_avoid(name or "")
    if run is None and name is None and not data.labels:
        raise SettingsError(
            f"`avoid` is None; {data.name} has no labels to avoid: cluster it first, then name "
            "that run, --avoid run:NAME",
            "avoid",
        )
    avoided = with_label(data, name, "avoid").classes if run is None else _clusters_of(run, data)
    try:
        class_dependence(avoided)
    except ValueError as error:
        raise SettingsError(
            f"`avoid` is {name or data.info.default_label!r}, which makes "
            f"{count_noun(len(np.unique(avoided)), 'group')} of {len(avoided)} rows; expected 2 "
            "groups or more, and at most half as many as rows. Name another label or run with "
            "--avoid",
            "avoid",
        ) from error
    return avoided


def _clusters_of(run: str, data: Dataset) -> Array:
    """Return the cluster labels that a saved run gave to these rows."""
    model = load_model(run)
    if model.labels is None:
        raise SettingsError(
            f"`avoid` is 'run:{run}', a run without clusters; name one of `ism-dask cluster`",
            "avoid",
        )
    if model.metrics.get("data_hash") != data.data_hash:
        source = [model.metrics.get(key) for key in ("dataset", "split")]
        raise SettingsError(
            f"`avoid` is 'run:{run}', clusters of other rows "
            f"({' '.join(str(each) for each in source if each)}); expected a run that has "
            f"clustered {data.name}",
            "avoid",
        )
    return model.labels


@dataclass(frozen=True)
class Paradigm:
    """An estimator of clusters, and what returns the y to fit it with, or None without labels."""

    estimator: Callable[..., ClusteringIKDR]
    target: Callable[[ClusterSettings, Dataset], Any]


PARADIGMS: dict[str, Paradigm] = {
    "unsupervised": Paradigm(UnsupervisedIKDR, lambda *_: None),
    "semisupervised": Paradigm(SemiSupervisedIKDR, _partial_labels),
    "alternative": Paradigm(AlternativeIKDR, _labels_to_avoid),
}
