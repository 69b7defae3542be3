"""Store a data set; knows nothing of Prefect."""

from __future__ import annotations

from typing import Any

from flows.settings import IngestSettings
from flows.work.data import ensure_stored


def store(settings: IngestSettings) -> dict[str, Any]:
    """Store a data set unless it is stored, check what is there, and return a summary in JSON."""
    data = ensure_stored(settings.dataset, settings.split, force=settings.force, weight=1.0)
    # Who asks for it by name wants to know that it is whole, not only that it is there.
    data.X.verify()
    rows, columns = data.X.shape
    return {
        "command": "ingest",
        "dataset": data.name,
        "split": data.split,
        "rows": rows,
        "columns": columns,
        "labels": {label: len(names) for label, names in data.class_names.items()},
        "data_hash": data.data_hash,
        "path": str(data.path),
    }
