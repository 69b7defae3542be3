"""Labels of a data set beside the one to explain: what a fit is to avoid, or is given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flows.errors import SettingsError
from flows.runs.data import Array, LabelledDataset, label_names, target_of
from flows.settings.base import import_choices
from flows.settings.runs import SIDES, SearchSettings
from storage import Dataset


def side_labels(settings: SearchSettings, labelled: LabelledDataset) -> Mapping[str, Array]:
    """Return the labels (n,) or (n, t) of a run by the argument of `fit` that takes them."""
    return {
        side: _columns(side, names, labelled)
        for side in SIDES
        if (names := label_names(getattr(settings, side) or ""))
    }


def at_rows(sides: Mapping[str, Array], rows: Array) -> Mapping[str, Array]:
    """Return the labels of some rows (k,)."""
    return {side: values[rows] for side, values in sides.items()}


def _columns(side: str, names: tuple[str, ...], labelled: LabelledDataset) -> Array:
    columns = [_column(side, name, labelled.data) for name in names]
    explained = set(label_names(labelled.label)) & {key for key, _ in columns}
    if explained:
        raise SettingsError(
            f"`{side}` has {explained.pop()!r}, which is the label to explain; expected another one"
        )
    values = [column for _, column in columns]
    # As objects, columns of one array can hold classes beside numbers.
    return (
        values[0] if len(values) == 1 else np.column_stack([each.astype(object) for each in values])
    )


def _column(side: str, name: str, data: Dataset) -> tuple[str, Array]:
    """Return the key and the values (n,) of a label: texts if they are classes, else numbers."""
    key = name if name in data.labels else import_choices().label_key(name)
    if key not in data.labels:
        labels = ", ".join(data.labels) or "no labels"
        raise SettingsError(
            f"`{side}` is {name!r}; {data.name} has {labels}. A column of a table is one if it is "
            "named at its first ingestion, such as by --label income --avoid age"
        )
    values = data.labels[key]
    return key, values.astype(str) if target_of(values) == "classes" else values
