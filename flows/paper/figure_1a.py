"""Measure Figure 1a: alternative clusterings of the colours of a picture and of faces."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flows.interface.progress import ProgressShare
from flows.interface.run_pictures import run_pictures, whole_picture
from flows.paper.methods import PAPER_GAUSSIAN, rows_in_memory
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.runs.clustering import label_agreement
from flows.runs.data import Array, ensure_stored
from flows.runs.fitting import timed_fit
from ism_dask import AlternativeIKDR, UnsupervisedIKDR
from ism_dask.estimators.clustering import ClusteringIKDR
from storage import Dataset

PictureJson = dict[str, str]

_PERSONS, _POSES = 20, 4


def _flower(data: Dataset, seed: int) -> list[PictureJson]:
    """Return the picture, its segments, and alternative segments."""
    X = data.X.read(0, len(data.X))
    first = _fitted(UnsupervisedIKDR(2, kernel=PAPER_GAUSSIAN, random_state=seed), X)
    other = _fitted(AlternativeIKDR(2, kernel=PAPER_GAUSSIAN, random_state=seed), X, first.labels_)
    apart = label_agreement(first.labels_, other.labels_)
    pictures = [
        ("The picture", "Each of its colours is a row.", whole_picture(data)),
        ("Two segments", "Clusters of the colours.", _picture(data, first, "segments")),
        (
            "Two other segments",
            f"What else there is: the two agree by {apart:.2f} (NMI).",
            _picture(data, other, "segments"),
        ),
    ]
    return [_picture_json(*each) for each in pictures if each[2]]


def _faces(data: Dataset, seed: int) -> list[PictureJson]:
    """Return the mean faces of clusters, and of alternative clusters that avoid the persons."""
    X, identity = rows_in_memory("face")
    persons = _fitted(UnsupervisedIKDR(_PERSONS, kernel=PAPER_GAUSSIAN, random_state=seed), X)
    others = _fitted(AlternativeIKDR(_POSES, kernel=PAPER_GAUSSIAN, random_state=seed), X, identity)
    pictures = [
        ("Clusters of faces", persons, f"Mean faces of {_PERSONS} clusters"),
        ("Clusters that are not the persons", others, f"Mean faces of {_POSES} other clusters"),
    ]
    return [
        _picture_json(title, f"{caption}: {_agreements(data, model)}.", content)
        for title, model, caption in pictures
        if (content := _picture(data, model, "clusters"))
    ]


def _fitted(model: ClusteringIKDR, X: Array, y: Array | None = None) -> ClusteringIKDR:
    timed_fit(model, X, y)
    return model


def _agreements(data: Dataset, model: ClusteringIKDR) -> str:
    agreements = (
        (name, label_agreement(data.labels[name], model.labels_)) for name in ("identity", "pose")
    )
    return ", ".join(f"NMI with {name} {value:.2f}" for name, value in agreements)


def _picture(data: Dataset, model: ClusteringIKDR, kind: str) -> bytes:
    return run_pictures(data, model).get(kind, b"")


def _picture_json(title: str, caption: str, content: bytes) -> PictureJson:
    return {"title": title, "caption": caption, "png": base64.b64encode(content).decode()}


_SUBJECTS: Mapping[str, Callable[[Dataset, int], list[PictureJson]]] = {
    "flower": _flower,
    "face": _faces,
}


@dataclass(frozen=True)
class Alternatives(Series):
    """The pictures of one data set."""

    data: str
    settings: TablesSettings

    part = "figure-1a"

    @property
    def subject(self) -> dict[str, str]:
        """The name of the data set."""
        return {"data": self.data}

    @property
    def steps(self) -> Sequence[int]:
        """A single step."""
        return (0,)

    @property
    def effort(self) -> float:
        """The same for both data sets: a few seconds each."""
        return 1000.0

    @property
    def source(self) -> tuple[str, str | None]:
        """The data set, in its default split."""
        return self.data, None

    def measure(self, step: int, part: ProgressShare) -> Result:  # noqa: ARG002  there is one
        """Find clusters, then alternative ones, and return their pictures."""
        started = time.perf_counter()
        with part.lasting(0.0, f"alternative clusters of {self.data}"):
            pictures = _SUBJECTS[self.data](ensure_stored(self.data, None), self.settings.seed)
        return {
            "seconds": time.perf_counter() - started,
            "status": "converged",
            "pictures": pictures,
        }


def figure_1a(settings: TablesSettings) -> Iterator[Series]:
    """Return the pictures of each data set."""
    return (Alternatives(data, settings) for data in _SUBJECTS)
