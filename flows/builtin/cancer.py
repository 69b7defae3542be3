"""Load UCI's original Wisconsin breast cancer data: lines of eleven comma-separated integers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from flows.builtin.raw_data import RawData, bad_file, read_bytes

LIMIT = 2**20
FEATURES = (
    "clump_thickness",
    "uniformity_cell_size",
    "uniformity_cell_shape",
    "marginal_adhesion",
    "single_epithelial_cell_size",
    "bare_nuclei",
    "bland_chromatin",
    "normal_nucleoli",
    "mitoses",
)
_CODES = {2: 0, 4: 1}
_LINE = re.compile(r"[0-9]+(,([1-9]|10)){9},[24]\s*")


def load_cancer(path: Path) -> RawData:
    """Load the table without the rows that have a missing value.

    Returns
    -------
    RawData
        X of shape (n, 9), uint8 from 1 to 10; label "diagnosis".
    """
    lines = read_bytes(path, LIMIT).decode("ascii", errors="replace").splitlines()
    rows = [
        _parse(path, number, line)
        for number, line in enumerate(lines, start=1)
        if line.strip() and "?" not in line
    ]
    if not rows:
        raise bad_file(path, "holds no complete row")
    table = np.array(rows)
    return RawData(
        X=table[:, :-1].astype(np.uint8),
        labels={"diagnosis": table[:, -1].astype(np.int64)},
        class_names={"diagnosis": ("benign", "malignant")},
        feature_names=FEATURES,
    )


def _parse(path: Path, number: int, line: str) -> list[int]:
    """Return the nine values and the class code of one line, without its id."""
    if not _LINE.fullmatch(line):
        raise bad_file(
            path,
            f"has {line[:80]!r} in line {number}; expected an id, nine integers from 1 to 10 "
            "and the class 2 or 4, separated by commas",
        )
    *values, diagnosis = (int(field) for field in line.split(",")[1:])
    return [*values, _CODES[diagnosis]]
