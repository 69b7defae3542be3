"""Measure Figure 1a: alternative clusterings of the colours of a picture and of faces."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.preprocessing import normalize, scale

from flows.interface.run_pictures import run_pictures, whole_picture
from flows.paper.methods import PAPER_GAUSSIAN
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from flows.runs.clustering import label_agreement
from flows.runs.data import Array, ensure_stored
from flows.runs.fitting import FittedModel, timed_fit
from ism_dask import AlternativeIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.kernels import Kernel, Polynomial
from ism_dask.solvers import ISM
from ism_dask.status import Status

# The most seconds of a fit: under the polynomial of the paper the faces do not settle in minutes.
_SECONDS = 60.0
_CONVERGED = Status.CONVERGED.value


@dataclass(frozen=True)
class Variant:
    """A kernel of the figure, and whether standardised rows are scaled to length 1 for it."""

    kernel: Kernel
    unit_rows: bool = False


_VARIANTS: Mapping[str, Variant] = {
    "gaussian": Variant(PAPER_GAUSSIAN),
    "polynomial": Variant(Polynomial()),
    "unit polynomial": Variant(Polynomial(), unit_rows=True),
}


@dataclass(frozen=True)
class Subject:
    """A data set of the figure.

    Attributes
    ----------
    title, alternative : str
        Names of its clusters, and of those that avoid what is known.
    n_clusters, n_alternative : int
        How many there are of each.
    avoid : str
        The label to avoid. `title` stands for the clusters themselves.
    picture : str
        The kind of picture that shows clusters: a name of `run_pictures`.
    """

    title: str
    alternative: str
    n_clusters: int
    n_alternative: int
    avoid: str
    picture: str


_SUBJECTS: Mapping[str, Subject] = {
    "flower": Subject("2 segments", "2 others", 2, 2, "2 segments", "segments"),
    "face": Subject("20 clusters", "4 others", 20, 4, "identity", "clusters"),
}


@dataclass(frozen=True)
class Alternatives(Series):
    """The clusterings of one data set under one kernel, and their pictures."""

    data: str
    kernel: str
    settings: TablesSettings

    part = "figure-1a"

    @property
    def subject(self) -> dict[str, str]:
        """The names of the data set and of the kernel."""
        return {"data": self.data, "kernel": self.kernel}

    @property
    def steps(self) -> Sequence[int]:
        """A single step."""
        return (0,)

    @property
    def effort(self) -> float:
        """The same for all: a few seconds each, but for the faces under the polynomial."""
        return 1000.0

    @property
    def source(self) -> tuple[str, str | None]:
        """The data set, in its default split."""
        return self.data, None

    def measure(self, step: int, part: ProgressShare) -> Result:  # noqa: ARG002  there is one
        """Find clusters, then alternative ones; return how the fits ended, and their pictures."""
        subject, data = _SUBJECTS[self.data], ensure_stored(self.data, None)
        rows = data.X.read(0, len(data.X))
        with part.lasting(0.0, f"alternative clusters of {self.title}"):
            first = self._fitted(UnsupervisedIKDR, subject.n_clusters, rows)
            labels = data.labels or {subject.title: first.model.labels_}
            other = self._fitted(
                AlternativeIKDR, subject.n_alternative, rows, labels[subject.avoid]
            )
        fits = [
            _record(subject.title, first, data.labels),
            _record(subject.alternative, other, labels),
        ]
        for fit, fitted in zip(fits, (first, other), strict=True):
            fit["png"] = _base64(run_pictures(data, fitted.model).get(subject.picture, b""))
        endings = [fit["ended"] for fit in fits]
        return {
            "seconds": first.seconds + other.seconds,
            "status": next((each for each in endings if each != _CONVERGED), _CONVERGED),
            "fits": fits,
            "original": _base64(whole_picture(data)),
        }

    def _fitted(
        self, estimator: type[ClusteringIKDR], k: int, rows: Array, avoid: Array | None = None
    ) -> FittedModel:
        variant = _VARIANTS[self.kernel]
        model = estimator(
            k,
            kernel=variant.kernel,
            solver=ISM(max_seconds=min(_SECONDS, self.settings.cap)),
            standardize=not variant.unit_rows,
            random_state=self.settings.seed,
        )
        return timed_fit(model, normalize(scale(rows)) if variant.unit_rows else rows, avoid)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _record(name: str, fitted: FittedModel, labels: Mapping[str, Array]) -> Result:
    """Return what is stored of a fit, with its agreement (NMI) with each of the labels."""
    model: Any = fitted.model
    ended = model.status_.value
    if ended == _CONVERGED and not model.converged_:
        ended = f"not settled in {len(model.rounds_)} rounds"
    nmi = {each: label_agreement(y, model.labels_) for each, y in labels.items()}
    return {"clusters": name, "nmi": nmi, "seconds": fitted.seconds, "ended": ended}


def figure_1a(settings: TablesSettings) -> Iterator[Series]:
    """Return the clusterings of each data set, under each kernel."""
    return (Alternatives(data, kernel, settings) for data in _SUBJECTS for kernel in _VARIANTS)
