"""What a run that clusters may be told of the rows: one entry for each paradigm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import train_test_split

from flows.data import Array, label_named
from flows.errors import SettingsError
from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from storage import Dataset, load_model

if TYPE_CHECKING:
    from flows.settings import ClusterSettings


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


def _nothing(_settings: ClusterSettings, _data: Dataset) -> None:
    return None


def _some_classes(settings: ClusterSettings, data: Dataset) -> Array:
    """Return the classes of a share of the rows, drawn from each class alike; -1 for others."""
    y = label_named(data, settings.label).classes
    if settings.scores_share == 1:
        return y
    scores = np.full(len(y), -1)
    try:
        known, _ = train_test_split(
            np.arange(len(y)),
            train_size=settings.scores_share,
            stratify=y,
            random_state=settings.seed,
        )
    except ValueError as error:
        raise SettingsError(
            f"`scores_share` is {settings.scores_share:g}, which does not leave a row with and one "
            f"without a score in each class of {len(y)} rows: {error}"
        ) from error
    scores[known] = y[known]
    return scores


def _to_avoid(settings: ClusterSettings, data: Dataset) -> Array:
    """Return the label to avoid, or the clusters of a run."""
    run = settings.run_to_avoid
    if run is None:
        return label_named(data, settings.avoid, "avoid").classes
    model = load_model(run)
    if model.labels is None:
        raise SettingsError(
            f"`avoid` is {settings.avoid!r}, a run without clusters; name one of `ism-dask cluster`"
        )
    if model.metrics.get("data_hash") != data.data_hash:
        told = [model.metrics.get(key) for key in ("dataset", "split")]
        raise SettingsError(
            f"`avoid` is {settings.avoid!r}, clusters of other rows "
            f"({' '.join(str(each) for each in told if each)}); expected a run that has clustered "
            f"{data.name}"
        )
    return model.labels


PARADIGMS: dict[str, Paradigm] = {
    "unsupervised": Paradigm(UnsupervisedIKDR, _nothing),
    "semisupervised": Paradigm(SemiSupervisedIKDR, _some_classes),
    "alternative": Paradigm(AlternativeIKDR, _to_avoid),
}
