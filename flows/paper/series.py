"""Pieces of work that follow each other, each kept as soon as it is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

from flows.interface.progress import ProgressShare, progress_note
from flows.paper.settings import TablesSettings
from flows.runs.data import ensure_stored
from storage import DamagedStore, PieceStore, StorageError, dataset_path

Result = dict[str, Any]

# How a piece that was over its cap has ended, as `ism_dask.status.Status` has it.
OVER_CAP = "over the cap"
_TROUBLES = (
    ArithmeticError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    StorageError,
    ValueError,
)


class Series(ABC):
    """Measurements of one thing: folds of a cell, points of a line, pictures of a data set.

    Attributes
    ----------
    part : str
        A name of `flows.paper.names.PARTS`.
    ends_over_cap : bool
        Whether there is no use in going on after a piece that was over the cap.
    """

    part: ClassVar[str]
    ends_over_cap: ClassVar[bool] = True

    @property
    @abstractmethod
    def subject(self) -> dict[str, str]:
        """What is measured, in plain words by what they are: its results are told apart by it."""

    @property
    @abstractmethod
    def steps(self) -> Sequence[int]:
        """What tells its pieces apart, in their order."""

    @property
    @abstractmethod
    def effort(self) -> float:
        """What a piece may take, against others: only the bar goes by it."""

    @property
    @abstractmethod
    def source(self) -> tuple[str, str | None]:
        """The data set and its split."""

    @abstractmethod
    def measure(self, step: int, part: ProgressShare) -> Result:
        """Do a piece, a part of what is watched; `seconds` and `status` are in what it returns."""

    def ends_with(self, result: Result) -> bool:
        """Say whether after such a result there is no use in the next piece."""
        return self.ends_over_cap and result["status"] == OVER_CAP

    @property
    def title(self) -> str:
        """What people call it."""
        return " ".join(self.subject.values())

    @property
    def name(self) -> str:
        """What its pieces are kept under."""
        words = "-".join([self.part, *self.subject.values()])
        return "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "_" for c in words)


@dataclass(frozen=True)
class SeriesResult:
    """What came of a strand.

    Attributes
    ----------
    part : str
    subject : Mapping
    results : list of dict
        By step, as far as they came.
    steps : int
        How many there could have been.
    problem : str
        Why there are no more, if that was an error.
    """

    part: str
    subject: Mapping[str, str]
    results: list[Result]
    steps: int
    problem: str = ""


def measure_series(strand: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Do what is not done yet of a strand."""
    results: list[Result] = []
    problem = ""
    try:
        results.extend(_Pieces(strand, settings).all(part))
    except _Trouble as trouble:
        # What went wrong with one is no reason to do without all others.
        problem = str(trouble)
        progress_note(f"{strand.title}: {problem}")
    return SeriesResult(strand.part, strand.subject, results, len(strand.steps), problem)


def read_measured(strand: Series, settings: TablesSettings) -> SeriesResult | None:
    """Return what earlier runs have kept of a strand, None if that is nothing."""
    if not dataset_path(*strand.source).exists():
        return None
    try:
        results = list(_Pieces(strand, settings).known())
    except _Trouble:
        return None
    return (
        SeriesResult(strand.part, strand.subject, results, len(strand.steps)) if results else None
    )


class _Trouble(Exception):  # noqa: N818 - its message is told, not its name
    """A strand cannot be measured."""


@contextmanager
def _as_trouble() -> Iterator[None]:
    """Turn what may go wrong with data or with numbers into a `_Trouble`.

    What goes wrong with the ledger is none: without it there is no use in going on.
    """
    try:
        yield
    except _TROUBLES as error:
        raise _Trouble(f"{type(error).__name__}: {error}") from error


class _Pieces:
    """The pieces of a strand and what is kept of them."""

    def __init__(self, strand: Series, settings: TablesSettings) -> None:
        self._strand, self._settings = strand, settings
        self._ledger = PieceStore.of_run(settings.run)
        with _as_trouble():
            data = ensure_stored(*strand.source)
        own = {"data_hash": data.data_hash, "version": version("ism-dask")}
        self._asked = {**settings.asked, **own}

    def all(self, part: ProgressShare) -> Iterator[Result]:
        """Yield the results, measuring what is not known, until there is no use or no time."""
        strand, spent = self._strand, 0.0
        parts = part.cut(len(strand.steps))
        for step, own in zip(strand.steps, parts, strict=True):
            if spent > self._settings.budget:
                return
            result = self._find(step)
            if result is None:
                with _as_trouble():
                    result = strand.measure(step, own)
                self._ledger.keep(self._piece(step), self._asked, result)
            own.report(1.0)
            yield result
            if strand.ends_with(result):
                return
            spent += result["seconds"]

    def known(self) -> Iterator[Result]:
        """Yield what is known, up to the first that is not."""
        for step in self._strand.steps:
            result = self._find(step)
            if result is None:
                return
            yield result

    def _find(self, step: int) -> Result | None:
        try:
            return self._ledger.find(self._piece(step), self._asked)
        except DamagedStore as error:
            progress_note(f"{error}: it is measured again")
            return None

    def _piece(self, step: int) -> str:
        return f"{self._strand.name}-{step}"
