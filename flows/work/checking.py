"""Data sets and runs looked through, file by file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate, pairwise
from typing import Any

from flows.errors import SettingsError
from flows.progress import Part
from flows.reports.facts import size
from storage import DATASETS, Kept, Problem, kept, kept_named


@dataclass(frozen=True)
class Checked:
    """What has been looked through.

    Attributes
    ----------
    kept : Kept
    files, bytes : int
        How many files have been read, and how long they are together.
    problems : tuple of Problem
    """

    kept: Kept
    files: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def verdict(self) -> str:
        """Say in a word what has been found."""
        return "damaged" if self.problems else "whole"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "name": self.kept.name,
            "kind": self.kept.kind,
            "path": str(self.kept.path),
            "files": self.files,
            "bytes": self.bytes,
            "problems": [{"path": str(each.path), "problem": each.what} for each in self.problems],
        }


def check(names: Sequence[str]) -> list[Checked]:
    """Read all files of the data sets and runs of these names, or of all there are.

    Raises
    ------
    SettingsError
        When there is neither a data set nor a run of a name.
    """
    named = [each for name in names for each in _named(name)]
    sought = list(dict.fromkeys(named)) if names else kept()
    ends = [*accumulate((max(1, each.bytes) for each in sought), initial=0)]
    parts = [Part(start / ends[-1], stop / ends[-1]) for start, stop in pairwise(ends)]
    return [
        _checked(each, part.named(f"check {each.name}"))
        for each, part in zip(sought, parts, strict=True)
    ]


def _checked(sought: Kept, part: Part) -> Checked:
    whole = max(1, sought.bytes)
    files = done = 0

    def on_bytes(count: int) -> None:
        nonlocal files, done
        files, done = files + 1, done + count
        part.report(min(1.0, done / whole), f"{size(done)} of {size(whole)}")

    problems = tuple(sought.problems(on_bytes))
    return Checked(sought, files, done, problems)


def _named(name: str) -> list[Kept]:
    found = kept_named(name)
    if not found:
        raise SettingsError(_unknown(name))
    return found


def _unknown(name: str) -> str:
    if name in DATASETS:
        return f"the data set {name!r} is not stored: `ism-dask ingest {name}` stores it"
    near = get_close_matches(name, [each.name for each in kept()])
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return (
        f"neither a data set nor a run {name!r} is kept; {meant}`ism-dask datasets` and `ism-dask "
        "runs` list them"
    )
