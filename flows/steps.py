"""The first step, which more than one flow has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.settings import DataSettings, Settings
from flows.tracking import rename_run
from flows.work.data import ensure_stored, open_labelled


@task(
    name="ingest",
    task_run_name="ingest {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def ingest_step(settings: DataSettings) -> dict[str, Any]:
    """Store the data set unless it is stored, and say how large it is."""
    rows, columns = ensure_stored(settings.dataset, settings.split).X.shape
    return {"rows": rows, "columns": columns}


def begin(settings: Settings) -> None:
    """Ingest, and name the run after what only the data can tell: the number of features."""
    ingest_step(settings)
    if settings.n_components is None:
        q = open_labelled(settings).components(settings)
        rename_run(replace(settings, n_components=q).title)
