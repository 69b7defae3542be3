"""Refreshes by night: how often sound tables alarm the default limits, and which bad ones do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from benchmarks.measure import Figure, in_processes, say
from benchmarks.registry import figure
from flows.refreshes.refresh import refresh
from flows.results.refresh import RefreshResult
from flows.settings.refresh import RefreshSettings

Change = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]
_TABLES: dict[str, Callable[..., Any]] = {
    "wine": load_wine,
    "cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "digits": load_digits,
}
# Sound nights of each table and way, and bad ones of each kind.
_NIGHTS, _BAD_NIGHTS = 15, 5
# The share of the rows in the first night of a table that grows, and in each of the others.
_FIRST, _DRAWN = 0.45, 0.9
# By how many deviations a column drifts in a night, unless a value has this share of its rows: what
# is measured drifts, levels and counts do not.
_DRIFT, _FREQUENT = 0.02, 0.05
_WAYS = ("grown", "drawn anew")
_MOST_ALARMS, _FEWEST_CAUGHT = 0.02, 0.95


@figure
def sound_nights() -> Figure:
    """Alarms of the default limits on sound nights: 5% more rows, or other rows, and some drift."""
    cells = [(name, way) for name in _TABLES for way in _WAYS]
    table = []
    for (name, way), alarms in zip(cells, in_processes(_alarms, cells), strict=True):
        words = "; ".join(dict.fromkeys(each.partition(":")[0] for each in alarms))
        table.append(
            {"table": name, "nights": way, "of": _NIGHTS, "alarms": len(alarms), "by": words}
        )
        say(", ".join(f"{key} {value}" for key, value in table[-1].items()))
        for each in alarms:
            say(each)
    rate = sum(line["alarms"] for line in table) / sum(line["of"] for line in table)
    return {
        "table": table,
        "false_alarms": rate,
        "must": f"at most {_MOST_ALARMS:.0%} of the nights alarm",
        "met": rate <= _MOST_ALARMS,
    }


@figure
def bad_nights() -> Figure:
    """Nights with bad tables that the default limits do not publish, by what is bad."""
    impossible = ("diabetes", "a new class in a fifth of the rows")  # it has numbers
    cells = [(x, kind) for x in _TABLES for kind in _BAD if (x, kind) != impossible]
    table = []
    for (name, kind), caught in zip(cells, in_processes(_caught, cells), strict=True):
        table.append(
            {"table": name, "bad": kind, "of": _BAD_NIGHTS, "caught": caught[0], "by": caught[1]}
        )
        say(", ".join(f"{key} {value}" for key, value in table[-1].items()))
    rate = sum(line["caught"] for line in table) / sum(line["of"] for line in table)
    return {
        "table": table,
        "caught": rate,
        "must": f"at least {_FEWEST_CAUGHT:.0%} of the nights are not published",
        "met": rate >= _FEWEST_CAUGHT,
    }


def _alarms(name: str, way: str) -> list[str]:
    """Return the reasons of the sound nights of a table that were suspicious."""
    frame, rng = _frame(name), np.random.default_rng(len(name) + len(way))
    columns = [
        each
        for each in frame
        if each != "y" and frame[each].value_counts(normalize=True).max() < _FREQUENT
    ]
    order = rng.permutation(len(frame))
    n = int((_FIRST if way == "grown" else _DRAWN) * len(frame))
    deviation = frame[columns].std()
    alarms = []
    with _shop(numbers=frame["y"].dtype.kind == "f") as night:
        for number in range(_NIGHTS + 1):
            rows = order[:n] if way == "grown" else rng.choice(order, n, replace=False)
            tonight = frame.iloc[rows].copy()
            tonight[columns] += _DRIFT * number * deviation * np.sign(np.arange(len(columns)) - 2.5)
            result = night(tonight)
            if number and result.state != "published":
                alarms.append(f"{'; '.join(result.reasons)}")
            n = round(n * 1.05) if way == "grown" else n
    return alarms


def _caught(name: str, kind: str) -> tuple[int, str]:
    """Return how many bad nights of a table were suspicious, and by which limits."""
    frame, caught, limits = _frame(name), 0, dict[str, None]()
    with _shop(numbers=frame["y"].dtype.kind == "f") as night:
        night(frame)
        for number in range(_BAD_NIGHTS):
            result = night(_BAD[kind](frame, np.random.default_rng(number)))
            caught += result.state == "suspicious"
            limits |= dict.fromkeys(each.partition(":")[0] for each in result.reasons)
    return caught, "; ".join(limits)


@contextmanager
def _shop(*, numbers: bool) -> Iterator[Callable[[pd.DataFrame], RefreshResult]]:
    """Yield what refreshes a run from a table, in a home of its own."""
    with (
        TemporaryDirectory() as name,
        patch.dict(os.environ, {"ISM_DASK_HOME": str(Path(name) / "home")}),
    ):
        run_file, table = Path(name) / "run.toml", Path(name) / "table.parquet"
        run_file.write_text(
            'run = "nightly"\n[data]\nsource = "table.parquet"\nlabel = "y"\n'
            f'target = "{"numbers" if numbers else "classes"}"\n[refresh]\n[fit]\n'
        )

        def night(frame: pd.DataFrame) -> RefreshResult:
            frame.to_parquet(table)
            return refresh(RefreshSettings(file=str(run_file), force=True))

        yield night


def _frame(name: str) -> pd.DataFrame:
    X, y = _TABLES[name](return_X_y=True)
    frame = pd.DataFrame(X, columns=[f"x{number}" for number in range(X.shape[1])])
    # Of digits, the pixels that are not the same in all pictures.
    frame = frame.loc[:, frame.std() > 0.1 * frame.std().median()]
    return frame.assign(y=y if y.dtype.kind == "f" else [f"class {each}" for each in y])


def _half_random(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    drawn = frame["y"].sample(len(frame), random_state=rng).to_numpy()
    return frame.assign(y=frame["y"].where(rng.random(len(frame)) < 0.5, drawn))


def _new_class(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.assign(y=frame["y"].where(rng.random(len(frame)) > 0.2, "another"))


def _doubled(frame: pd.DataFrame, _: np.random.Generator) -> pd.DataFrame:
    return pd.concat([frame, frame], ignore_index=True)


def _shifted(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    column = f"x{rng.choice([each for each in range(99) if f'x{each}' in frame])}"
    return frame.assign(**{column: frame[column] + 2 * frame[column].std()})


def _renamed(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    names = rng.choice([each for each in frame if each != "y"], 2, replace=False)
    return frame.rename(columns={each: f"{each} (cm)" for each in names})


def _half_lost(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.sample(len(frame) // 2, random_state=rng)


_BAD: dict[str, Change] = {
    "half of all labels at random": _half_random,
    "a new class in a fifth of the rows": _new_class,
    "all rows doubled": _doubled,
    "half of the rows lost": _half_lost,
    "a column shifted by two deviations": _shifted,
    "two columns renamed": _renamed,
}
