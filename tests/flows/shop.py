"""A table of sales that changes, and the run file that refreshes a run from it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from daskparts import ran
from support import Command

RUN_FILE = """\
run = "sales"
report = "sales.html"

[data]
source = "parts/*.parquet"
name = "shop"
label = "churned"

[refresh]

[fit]
n_components = 2

[[transform]]
source = "parts/a.parquet"
out = "new.csv"
"""


# The same without its page, which takes a second; and without any outputs, with a fit in no time.
WITHOUT_PAGE = RUN_FILE.replace('report = "sales.html"\n', "")
QUICK_FILE = WITHOUT_PAGE.partition("[[")[0].rstrip() + (
    '\ncriterion = "dependence"\nkernel = "polynomial"\n'
)


def open_shop(folder: Path, text: str = RUN_FILE) -> Path:
    """Write the first part of the table, and the run file; return the path of that."""
    write_part(folder, "a", 400)
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def write_part(folder: Path, name: str, n: int, shift: float = 0.0) -> None:
    """Write a part of the table, with x moved by `shift`."""
    rng = np.random.default_rng(len(name) + n)
    frame = pd.DataFrame(rng.normal(size=(n, 5)), columns=list("vwxyz"))
    frame["churned"] = np.where(frame["v"] * frame["w"] > 0, "yes", "no")
    frame["x"] += shift
    (folder / "parts").mkdir(exist_ok=True)
    frame.to_parquet(folder / "parts" / f"{name}.parquet")


def change_part(
    folder: Path, name: str, change: Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]
) -> None:
    """Write a part of the table anew, as a function changes it."""
    path = folder / "parts" / f"{name}.parquet"
    change(pd.read_parquet(path), np.random.default_rng(0)).to_parquet(path)


def half_random_labels(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    drawn = rng.choice(["no", "yes"], len(frame))
    return frame.assign(churned=np.where(rng.random(len(frame)) < 0.5, drawn, frame["churned"]))


def third_class(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.assign(churned=frame["churned"].where(rng.random(len(frame)) > 0.2, "maybe"))


# Changes of a part that make a refresh suspicious, each with what it names.
BAD = {
    "half of all labels at random": (half_random_labels, "max_fall: "),
    "a third class in a fifth of a file": (third_class, "max_class_changes: "),
    "all labels inverted": (
        lambda part, _: part.assign(churned=part["churned"].map({"yes": "no", "no": "yes"})),
        "max_fall: the rows of the published run predict",
    ),
    "40% of the rows twice": (
        lambda part, rng: pd.concat([part, part.sample(frac=0.4, random_state=rng)]),
        "max_equal_rows: 28.6% of the rows equal an earlier one, before 0.0%",
    ),
    "all rows doubled": (lambda part, _: pd.concat([part, part], ignore_index=True), "max_rows: "),
    "two columns renamed": (
        lambda part, _: part.rename(columns={"y": "why", "z": "zed"}),
        "the data lack columns: y, z",
    ),
}


def killed_at(moment: str, code: str) -> None:
    """Run code in a process that ends where it would call the function `moment`."""
    begun = (
        "import os, pkgutil\n"
        f"owner, _, name = {moment!r}.rpartition('.')\n"
        "setattr(pkgutil.resolve_name(owner), name, lambda *a, **k: os._exit(9))\n"
    )
    assert ran(sys.executable, "-c", begun + code).returncode == 9


def refreshed(here: Command, run_file: Path, *more: object) -> Any:
    """Refresh by the command, without Prefect, and return its answer."""
    return here("run", run_file, "--plain", "--json", *more).answer
