"""What the paper has printed, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from flows.paper.names import RIVALLED


def published(paradigm: str, data: str, kernel: str, method: str) -> Mapping[str, Any]:
    """Return the figures of a cell of Table 4 or 5; nothing where the paper has none.

    Accuracies are shares here, not percents.
    """
    if not method:
        return {}
    table = "table_4" if kernel in RIVALLED else "table_5"
    cell = _tables()[table][paradigm].get(data, {}).get(kernel, {})
    if kernel in RIVALLED:
        cell = cell.get(method, {})
    elif method != "ism":
        cell = {}
    return _as_shares(cell)


def _as_shares(cell: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(cell)
    if "accuracy_percent" in told:
        told["score"] = told.pop("accuracy_percent") / 100
        told["score_sd"] = told.pop("accuracy_sd") / 100
    if "nmi" in told:
        told["score"] = told.pop("nmi")
    return told


@cache
def _tables() -> dict[str, Any]:
    text = (files("flows.paper") / "published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
