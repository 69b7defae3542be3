"""Measure accuracy against the number of new features, for ISM, PCA, LDA and NCA on MNIST."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sklearn.svm import SVC

from flows.paper.methods import (
    Request,
    fit_default,
    fit_facts,
    fit_method,
    rows_in_memory,
    sampled_rows,
)
from flows.paper.names import ISM_PUBLISHED
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from flows.runs.data import Array
from flows.runs.fitting import FittedModel

_DATA, _SPLIT = "mnist", "test"
# Number of training rows; the others are the test rows.
_ROWS = 5000
_COUNTS = (1, 2, 3, 5, 9, 10, 20)
# LDA has at most as many components as classes less one.
_LDA_COUNTS = _COUNTS[:5]
_SECONDS = 60.0

_Learn = Callable[[Request, Array, Array], FittedModel]


_LINES: Mapping[str, tuple[_Learn, Sequence[int]]] = {
    "PCA": (partial(fit_method, "pca"), _COUNTS),
    "LDA": (partial(fit_method, "lda"), _LDA_COUNTS),
    "NCA": (partial(fit_method, "nca"), _COUNTS),
    "ISM, the paper's settings": (partial(fit_method, ISM_PUBLISHED), _COUNTS),
    "ISM, the default": (fit_default, _COUNTS),
}


@dataclass(frozen=True)
class FeatureLine(Series):
    """The line of one method in the figure; its steps are the numbers of new features."""

    line: str
    settings: TablesSettings

    part = "features"
    # A method over its time limit still returns features, so the line goes on.
    ends_over_cap = False

    @property
    def subject(self) -> dict[str, str]:
        """The name of the line."""
        return {"line": self.line}

    @property
    def steps(self) -> Sequence[int]:
        """The numbers of new features."""
        return _LINES[self.line][1]

    @property
    def effort(self) -> float:
        """The same for all lines: the number of training rows."""
        return float(_ROWS)

    @property
    def source(self) -> tuple[str, str | None]:
        """MNIST's test images."""
        return _DATA, _SPLIT

    def measure(self, step: int, part: ProgressShare) -> Result:
        """Learn `step` features, and measure the accuracy of an SVM on the test rows."""
        X, y = rows_in_memory(_DATA, _SPLIT)
        train, test = sampled_rows(_DATA, _SPLIT, _ROWS, self.settings.seed)
        request = Request(step, "gaussian", min(_SECONDS, self.settings.cap), self.settings.seed)
        with part.lasting(0.0, f"{self.line}, {step} features"):
            fitted = _LINES[self.line][0](request, X[train], y[train])
            classifier = SVC(kernel="rbf").fit(fitted.model.transform(X[train]), y[train])
            score = classifier.score(fitted.model.transform(X[test]), y[test])
        return {"count": step, "score": float(score), **fit_facts(fitted)}


def features(settings: TablesSettings) -> Iterator[Series]:
    """Return the lines of the figure."""
    return (FeatureLine(line, settings) for line in _LINES)
