"""Start a flow from the command line, under Prefect or without it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flows.cli.output import Output
from flows.errors import FlowError
from flows.settings.base import FlowSettings

# Takes the settings of a flow, and returns its result.
Work = Callable[[Any], Any]


@dataclass(frozen=True)
class LazyFlow:
    """A flow, whose functions are imported when it runs.

    Attributes
    ----------
    work : callable
        Imports and returns the function that runs it: without Prefect if its argument is true,
        else under Prefect.
    """

    work: Callable[[bool], Work]

    def run(self, settings: FlowSettings, output: Output, *, plain: bool) -> Any:
        """Run the flow, show its progress, and return its result."""
        place = getattr(settings, "scheduler", None)
        if place is not None:
            from flows.compute.places import cluster_place  # noqa: PLC0415

            cluster_place(place)  # for its error, before anything starts
        if not plain:
            connect_to_prefect(output)
        work = self.work(plain)
        with output.watched():
            return work(settings)


def connect_to_prefect(output: Output) -> str:
    """Set Prefect's environment, start a server unless ours runs, and return its API address."""
    from flows.tracking.server import ensure_server, prepare_environment  # noqa: PLC0415

    prepare_environment(debug=output.debug)
    # While the server is unreachable, Prefect would report on stderr that it could not send logs.
    logging.raiseExceptions = output.debug
    try:
        return ensure_server(output.say)
    except FlowError as error:
        raise FlowError(f"{error}. Run with --plain to do without Prefect") from error


def _ingest(plain: bool) -> Work:
    if plain:
        from flows.runs.data import store  # noqa: PLC0415

        return store
    from flows.ingest import run_ingest  # noqa: PLC0415

    return run_ingest


def _fit(plain: bool) -> Work:
    if plain:
        from flows.runs.fit import fit_plain  # noqa: PLC0415

        return fit_plain
    from flows.fit import run_fit  # noqa: PLC0415

    return run_fit


def _crossval(plain: bool) -> Work:
    if plain:
        from flows.runs.crossval import crossval_plain  # noqa: PLC0415

        return crossval_plain
    from flows.crossval import run_crossval  # noqa: PLC0415

    return run_crossval


def _cluster(plain: bool) -> Work:
    if plain:
        from flows.runs.clustering import cluster_plain  # noqa: PLC0415

        return cluster_plain
    from flows.cluster import run_cluster  # noqa: PLC0415

    return run_cluster


def _unfold(plain: bool) -> Work:
    if plain:
        from flows.runs.unfolding import unfold_plain  # noqa: PLC0415

        return unfold_plain
    from flows.unfold import run_unfold  # noqa: PLC0415

    return run_unfold


def _tables(plain: bool) -> Work:
    if plain:
        from flows.paper.measure import tables_plain  # noqa: PLC0415

        return tables_plain
    from flows.tables import run_tables  # noqa: PLC0415

    return run_tables


def _refresh(plain: bool) -> Work:
    if plain:
        from flows.refreshes.refresh import refresh  # noqa: PLC0415

        return refresh
    from flows.refresh import run_refresh  # noqa: PLC0415

    return run_refresh


INGEST = LazyFlow(_ingest)
FIT = LazyFlow(_fit)
CROSSVAL = LazyFlow(_crossval)
CLUSTER = LazyFlow(_cluster)
UNFOLD = LazyFlow(_unfold)
TABLES = LazyFlow(_tables)
REFRESH = LazyFlow(_refresh)
