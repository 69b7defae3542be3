"""What a run that clusters may be told of the rows: one entry for each paradigm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import train_test_split

from flows.errors import SettingsError
from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from storage import Dataset, load_model

if TYPE_CHECKING:
    from flows.settings import ClusterSettings

_RUN = "run:"


@dataclass(frozen=True)
class Paradigm:
    """An estimator and what it is told.

    Attributes
    ----------
    estimator : callable
        Takes the parameters that all share.
    told : callable
        Returns y for a data set, None where nothing is told.
    """

    estimator: Callable[..., ClusteringIKDR]
    told: Callable[[ClusterSettings, Dataset], Any]

    def model(self, settings: ClusterSettings, k: int, **shared: Any) -> ClusteringIKDR:
        """Return the estimator of a run."""
        guided = {} if self.estimator is UnsupervisedIKDR else {"mu": settings.mu}
        return self.estimator(k, settings.n_components, **guided, **shared)


def label_of(settings: ClusterSettings, data: Dataset, name: str | None = None) -> Any:
    """Return the label called `name`, or that of the settings, or the data set's own."""
    wanted = name or settings.label or data.info.default_label
    if wanted is None or wanted not in data.labels:
        known = ", ".join(data.labels) or "none"
        raise SettingsError(f"`label` is {wanted!r}; {data.name} has {known}")
    return np.asarray(data.labels[wanted])


def _nothing(_settings: ClusterSettings, _data: Dataset) -> None:
    return None


def _some_classes(settings: ClusterSettings, data: Dataset) -> Any:
    """Return the classes of a share of the rows, drawn from each class alike; -1 for others."""
    y = label_of(settings, data)
    scores = np.full(len(y), -1)
    if settings.scores_share == 1:
        return y
    try:
        known, _ = train_test_split(
            np.arange(len(y)),
            train_size=settings.scores_share,
            stratify=y,
            random_state=settings.seed,
        )
    except ValueError as error:
        raise SettingsError(
            f"`scores_share` is {settings.scores_share:g}, too few of {len(y)} rows to draw from "
            f"each class: {error}"
        ) from error
    scores[known] = y[known]
    return scores


def _to_avoid(settings: ClusterSettings, data: Dataset) -> Any:
    """Return the label to avoid, or the clusters of a run."""
    avoid = settings.avoid or ""
    if not avoid.startswith(_RUN):
        return label_of(settings, data, settings.avoid)
    run = avoid.removeprefix(_RUN)
    labels = load_model(run).labels
    if labels is None or len(labels) != len(data.X):
        what = "no clusters" if labels is None else f"clusters of {len(labels)} rows"
        raise SettingsError(
            f"`avoid` is {avoid!r}, but that run has {what}; {data.name} has {len(data.X)} rows"
        )
    return labels


PARADIGMS: dict[str, Paradigm] = {
    "unsupervised": Paradigm(UnsupervisedIKDR, _nothing),
    "semisupervised": Paradigm(SemiSupervisedIKDR, _some_classes),
    "alternative": Paradigm(AlternativeIKDR, _to_avoid),
}
