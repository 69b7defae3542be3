"""The first step, which more than one flow has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from flows.errors import FlowError
from flows.settings import DataSettings, Settings
from flows.tracking import rename_run
from flows.work.data import ensure_stored, open_labelled
from storage import DownloadError


def worth_another_try(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Say whether what has failed may go right later: a network, or a cluster, that is away."""
    try:
        state.result()
    except DownloadError:
        return True
    except FlowError as error:
        return error.transient
    except Exception:
        return False
    return False


# For tasks that need more than this machine. What is computed by then is not computed again.
RETRIED: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": [10, 60],
    "retry_condition_fn": worth_another_try,
}


@task(
    name="ingest",
    task_run_name="ingest {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
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
