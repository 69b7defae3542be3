"""Save and load a fitted projection: arrays in Zarr, the rest in JSON, nothing pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.digest import content_digest
from storage.errors import DatasetNotFound, StorageError
from storage.groups import built_at, commit_group, get_array, open_checked, put_array
from storage.home import home, resolve_under
from storage.jsontext import dumps, loads
from storage.manifest import damaged
from storage.workspace import settle

FORMAT_VERSION = 1
_ARRAYS = ("components", "mean", "scale", "eigenvalues")
# Only some models have them.
_LABELS = "labels"
_PICTURES = "pictures"


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted projection and how it came about.

    Attributes
    ----------
    components : ndarray of shape (q, d)
        Rows are the new features, in standardised units.
    mean, scale : ndarray of shape (d,)
        The standardisation of the columns.
    eigenvalues : ndarray of shape (q,)
        Of the final Phi.
    feature_names, class_names : tuple of str, optional
        Of the columns, and of the classes the model was fitted to.
    labels : ndarray of shape (n,), optional
        The cluster of each row, where the run is one that clusters.
    config, metrics, versions : Mapping
        Plain values: numbers (NaN and infinity too), strings, lists, mappings. Tuples come back
        as lists.
    """

    components: NDArray[Any]
    mean: NDArray[Any]
    scale: NDArray[Any]
    eigenvalues: NDArray[Any]
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    labels: NDArray[Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        q, d = self.components.shape if self.components.ndim == 2 else (0, 0)
        shapes = {"components": (q, d), "mean": (d,), "scale": (d,), "eigenvalues": (q,)}
        for name, shape in shapes.items():
            _check_array(name, getattr(self, name), shape)
        if self.feature_names is not None and len(self.feature_names) != d:
            raise StorageError(
                f"`feature_names` has {len(self.feature_names)} names; expected {d}."
            )
        labels = self.labels
        if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "ui"):
            raise StorageError(
                f"`labels` has shape {labels.shape} of {labels.dtype}; expected one whole number "
                "for each row."
            )


def runs_folder() -> Path:
    """Return the folder that holds the runs."""
    return home() / "runs"


def model_path(name: str) -> Path:
    """Return the folder of the model of run `name`, whether or not it exists."""
    return resolve_under(resolve_under(runs_folder(), name), "model")


def save_model(name: str, model: Model, pictures: Mapping[str, bytes] | None = None) -> Path:
    """Save `model` as the model of run `name`, whole or not at all, replacing an earlier one.

    Parameters
    ----------
    name : str
    model : Model
    pictures : Mapping[str, bytes], optional
        Content of files by their names. They are part of the model: `picture_path` says where.

    Returns
    -------
    The folder of the model.
    """
    target = model_path(name)
    arrays = {key: np.asarray(getattr(model, key)) for key in _ARRAYS}
    if model.labels is not None:
        arrays[_LABELS] = np.asarray(model.labels)

    def fill(group: zarr.Group) -> str:
        for key, values in arrays.items():
            put_array(group, key, values)
        _put_pictures(built_at(group), pictures or {})
        others = {key: values for key, values in arrays.items() if key != "components"}
        return content_digest(arrays["components"], others)

    commit_group(target, {"format_version": FORMAT_VERSION, "record": _record(model)}, fill)
    return target


def picture_path(model: Path, file: str) -> Path:
    """Return where the model in a folder has a picture of that name, whether or not it does."""
    return resolve_under(model / _PICTURES, file)


def load_model(name_or_path: str | Path) -> Model:
    """Load the model of a run by its name, or from the folder that a Path names."""
    path = model_path(name_or_path) if isinstance(name_or_path, str) else name_or_path
    if not settle(path):
        raise DatasetNotFound(
            f"no model of {str(name_or_path)!r} at {path}; fit and save it first."
        )
    _, group = open_checked(path)
    try:
        arrays: dict[str, Any] = {key: get_array(group, key) for key in _ARRAYS}
        labels = np.asarray(get_array(group, _LABELS)) if _LABELS in group else None
        return Model(**arrays, labels=labels, **_revived(group.attrs.asdict()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path, "zarr.json", f"not the record of a model ({error})") from error


def _put_pictures(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write pictures of the model in `folder`; one without any has no folder for them."""
    for file, content in files.items():
        path = picture_path(folder, file)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def _record(model: Model) -> str:
    """Return all but the arrays as JSON text; text, because Zarr's own JSON knows no NaN."""
    names = ("feature_names", "class_names", "config", "metrics", "versions")
    return dumps({name: getattr(model, name) for name in names})


def _revived(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `_record` wrote."""
    if attributes.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"`format_version` is {attributes.get('format_version')!r}; this version reads "
            f"{FORMAT_VERSION}. Upgrade the package, or fit and save the model again."
        )
    record: dict[str, Any] = loads(attributes["record"])
    for name in ("feature_names", "class_names"):
        record[name] = None if record[name] is None else tuple(record[name])
    return record


def _check_array(name: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise StorageError unless an array has its shape and finite numbers."""
    if values.shape != shape or 0 in shape or values.dtype.kind != "f":
        raise StorageError(
            f"`{name}` has shape {values.shape} of {values.dtype}; expected {shape} of floats, "
            "where `components` is (q, d) with q, d >= 1."
        )
    if not np.isfinite(values).all():
        raise StorageError(f"`{name}` holds NaN or infinity; expected finite numbers. Fit again.")
