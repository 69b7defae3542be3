"""The Prefect flow `ingest`, and the ingestion step with which the other flows begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import fsspec
from prefect import flow
from prefect.filesystems import RemoteFileSystem

from flows.errors import SettingsError
from flows.progress.watching import in_context
from flows.reports.markdown import render_markdown
from flows.results.base import IngestResult
from flows.runs.columns_read import ingest_summary
from flows.runs.data import LabelledDataset, RunSettings, label_of, store_dataset, store_for_run
from flows.settings.base import IngestSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.tracking.flow_run import TrackedRun, step, track_run
from storage import Dataset

Search = TypeVar("Search", CrossvalSettings, FitSettings)


@step("store", "store {settings.dataset}")
def store_step(settings: IngestSettings) -> IngestResult:
    """Read the raw files, check them, and store the rows."""
    return store_dataset(settings)


@flow(name="ingest", flow_run_name="{settings.flow_run_name}", persist_result=False)
def ingest(settings: IngestSettings) -> dict[str, Any]:
    """Read the raw files of a data set, check them, and store the rows."""
    with track_run("ingest", settings) as run:
        with block_credentials(settings.credentials):
            result: IngestResult = store_step(settings)
        about = f"{result.dataset}, {result.rows:,} rows, {result.columns:,} columns"
        return run.finished(result, run.page(render_markdown(ingest_summary(result)), about))


@step("ingest", "ingest {settings.dataset}")
def ingest_step(settings: RunSettings) -> tuple[RunSettings, Dataset]:
    """Store the data set unless it is stored already; return the settings with its name, and it."""
    return store_for_run(settings)


def ingest_and_name_run(
    settings: Search, run: TrackedRun, run_name: Callable[[Search, LabelledDataset], str]
) -> tuple[Search, Dataset]:
    """Ingest the data set, and name the flow run by the data, the saved run and q.

    Unless the settings give q, it follows from the number of classes in the data. Return the
    settings with the name of the data set, and the data set.
    """
    named, data = ingest_step(settings)
    labelled = label_of(data, named)
    q = labelled.count_components(named)
    run.describe(replace(named, n_components=q, run=run_name(named, labelled)))
    return named, data


@contextmanager
def block_credentials(name: str | None) -> Iterator[None]:
    """Read addresses with the settings of a Prefect block; None changes nothing.

    Parameters
    ----------
    name : str, optional
        A block of type remote-file-system, such as "lake" or "remote-file-system/lake". Its
        settings are those that fsspec takes for the protocol of its base path.
    """
    if name is None:
        yield
        return
    try:
        loaded = RemoteFileSystem.load(name.removeprefix("remote-file-system/"))
    except ValueError as error:
        raise SettingsError(
            f"`credentials` is {name!r}, but the Prefect server has no such block of type "
            "remote-file-system; make one in its UI, under Blocks"
        ) from error
    block = cast(RemoteFileSystem, loaded)
    protocol = block.basepath.partition("://")[0]
    earlier = fsspec.config.conf.get(protocol)
    fsspec.config.conf[protocol] = dict(block.settings)
    try:
        with in_context(credentials=name):
            yield
    finally:
        del fsspec.config.conf[protocol]
        if earlier is not None:
            fsspec.config.conf[protocol] = earlier
