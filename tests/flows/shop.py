"""A table of sales that changes, and the run file that refreshes a run from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from commandline import Command

RUN_FILE = """\
run = "sales"
report = "sales.html"

[data]
source = "parts/*.parquet"
name = "shop"
label = "churned"

[fit]
n_components = 2

[[transform]]
source = "parts/a.parquet"
out = "new.csv"
"""


def open_shop(folder: Path) -> Path:
    """Write the first part of the table, and the run file; return the path of that."""
    write_part(folder, "a", 400)
    (folder / "run.toml").write_text(RUN_FILE)
    return folder / "run.toml"


def write_part(folder: Path, name: str, n: int, shift: float = 0.0, columns: str = "vwxyz") -> None:
    """Write a part of the table, with x moved by `shift`."""
    rng = np.random.default_rng(len(name) + n)
    frame = pd.DataFrame(rng.normal(size=(n, len(columns))), columns=list(columns))
    frame["churned"] = np.where(frame["v"] * frame["w"] > 0, "yes", "no")
    frame["x"] += shift
    (folder / "parts").mkdir(exist_ok=True)
    frame.to_parquet(folder / "parts" / f"{name}.parquet")


def refreshed(here: Command, run_file: Path, *more: object) -> Any:
    """Refresh by the command, without Prefect, and return its answer."""
    return here("refresh", run_file, "--plain", "--json", *more).answer
