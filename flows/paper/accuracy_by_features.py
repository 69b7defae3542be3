"""Accuracy against the number of new features: why the few that ISM finds are worth having."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sklearn.svm import SVC

from flows.interface.progress import ProgressShare
from flows.paper.methods import Request, account, by_default, learned, rows_of, sampled_rows
from flows.paper.names import ISM_PUBLISHED
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.runs.data import Array, Fitted

_DATA, _SPLIT = "mnist", "test"
# So many are learned from, the others judge.
_ROWS = 5000
_COUNTS = (1, 2, 3, 5, 9, 10, 20)
# LDA has no more: one less than there are classes.
_LDA_COUNTS = _COUNTS[:5]
_SECONDS = 60.0

_Learn = Callable[[Request, Array, Array], Fitted]


_LINES: Mapping[str, tuple[_Learn, Sequence[int]]] = {
    "PCA": (partial(learned, "pca"), _COUNTS),
    "LDA": (partial(learned, "lda"), _LDA_COUNTS),
    "NCA": (partial(learned, "nca"), _COUNTS),
    "ISM, the paper's settings": (partial(learned, ISM_PUBLISHED), _COUNTS),
    "ISM, the default": (by_default, _COUNTS),
}


@dataclass(frozen=True)
class FeatureLine(Series):
    """A line of the figure, point by point."""

    line: str
    settings: TablesSettings

    part = "features"
    # What was over its cap has features as well.
    ends_over_cap = False

    @property
    def subject(self) -> dict[str, str]:
        """Its name."""
        return {"line": self.line}

    @property
    def steps(self) -> Sequence[int]:
        """Numbers of new features."""
        return _LINES[self.line][1]

    @property
    def effort(self) -> float:
        """Alike."""
        return float(_ROWS)

    @property
    def source(self) -> tuple[str, str | None]:
        """The data set."""
        return _DATA, _SPLIT

    def measure(self, step: int, part: ProgressShare) -> Result:
        """Learn so many features, and judge them on rows that were not seen."""
        X, y = rows_of(_DATA, _SPLIT)
        train, test = sampled_rows(_DATA, _SPLIT, _ROWS, self.settings.seed)
        request = Request(step, "gaussian", min(_SECONDS, self.settings.cap), self.settings.seed)
        with part.lasting(0.0, f"{self.line}, {step} features"):
            found = _LINES[self.line][0](request, X[train], y[train])
            judge = SVC(kernel="rbf").fit(found.model.transform(X[train]), y[train])
            score = judge.score(found.model.transform(X[test]), y[test])
        return {"count": step, "score": float(score), **account(found)}


def features(settings: TablesSettings) -> Iterator[Series]:
    """Return the lines."""
    return (FeatureLine(line, settings) for line in _LINES)
