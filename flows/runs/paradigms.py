"""The paradigms of clustering: for each, its estimator and the labels y that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import train_test_split

from flows import text
from flows.errors import SettingsError
from flows.runs.data import Array, with_label
from flows.runs.saving import saved_model
from flows.settings.runs import SCORES_SHARE, run_to_avoid
from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.gamma.classes import class_dependence
from storage import Dataset

if TYPE_CHECKING:
    from flows.settings.runs import ClusterSettings


@dataclass(frozen=True)
class Paradigm:
    """An estimator of clusters and the labels that it is given.

    Attributes
    ----------
    estimator : callable
        Takes the parameters that all clustering estimators share.
    target : callable
        Returns the y to fit with for a data set, or None for an estimator without labels.
    """

    estimator: Callable[..., ClusteringIKDR]
    target: Callable[[ClusterSettings, Dataset], Any]

    def model(self, settings: ClusterSettings, k: int, **shared: Any) -> ClusteringIKDR:
        """Return the estimator with the parameters of a run."""
        weight = {} if settings.mu is None else {"mu": settings.mu}
        return self.estimator(k, settings.n_components, **weight, **shared)


def _no_labels(_settings: ClusterSettings, _data: Dataset) -> None:
    return None


def _partial_labels(settings: ClusterSettings, data: Dataset) -> Array:
    """Draw the same share of rows from each class; return their classes, and -1 for other rows."""
    y = with_label(data, settings.label).classes
    share = SCORES_SHARE if settings.scores_share is None else settings.scores_share
    if share == 1:
        return y
    scores = np.full(len(y), -1)
    try:
        labelled, _ = train_test_split(
            np.arange(len(y)),
            train_size=share,
            stratify=y,
            random_state=settings.seed,
        )
    except ValueError as error:
        raise SettingsError(
            f"`scores_share` is {share:g}, which does not leave a row with and one without a score "
            f"in each class of {len(y)} rows: {error}"
        ) from error
    scores[labelled] = y[labelled]
    return scores


def _labels_to_avoid(settings: ClusterSettings, data: Dataset) -> Array:
    """Return the labels to avoid (n,), or several side by side (n, t)."""
    names = settings.to_avoid or (settings.avoid,)
    columns = [_label_to_avoid(name, data) for name in names]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def _label_to_avoid(name: str | None, data: Dataset) -> Array:
    """Return a label to avoid (n,): a label of the data set, or the clusters of a run."""
    run = run_to_avoid(name or "")
    avoided = _data_label(name, data) if run is None else _saved_clusters(run, data)
    try:
        class_dependence(avoided)
    except ValueError as error:
        groups = text.count_noun(len(np.unique(avoided)), "group")
        raise SettingsError(
            f"`avoid` is {name or data.info.default_label!r}, which makes {groups} of "
            f"{len(avoided)} rows; expected 2 groups or more, and at most half as many as rows. "
            "Name another label or run with --avoid"
        ) from error
    return avoided


def _data_label(name: str | None, data: Dataset) -> Array:
    if name is None and not data.labels:
        raise SettingsError(
            f"`avoid` is None; {data.name} has no labels to avoid: cluster it first, then name "
            "that run, --avoid run:NAME"
        )
    return with_label(data, name, "avoid").classes


def _saved_clusters(run: str, data: Dataset) -> Array:
    """Return the cluster labels that a saved run gave to these rows."""
    model = saved_model(run)
    if model.labels is None:
        raise SettingsError(
            f"`avoid` is 'run:{run}', a run without clusters; name one of `ism-dask cluster`"
        )
    if model.metrics.get("data_hash") != data.data_hash:
        source = [model.metrics.get(key) for key in ("dataset", "split")]
        raise SettingsError(
            f"`avoid` is 'run:{run}', clusters of other rows "
            f"({' '.join(str(each) for each in source if each)}); expected a run that has "
            f"clustered {data.name}"
        )
    return model.labels


PARADIGMS: dict[str, Paradigm] = {
    "unsupervised": Paradigm(UnsupervisedIKDR, _no_labels),
    "semisupervised": Paradigm(SemiSupervisedIKDR, _partial_labels),
    "alternative": Paradigm(AlternativeIKDR, _labels_to_avoid),
}
