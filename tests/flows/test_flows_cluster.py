"""A Dask cluster that is already running."""

from __future__ import annotations

import re
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from commandline import Command
from support import EXACT, Diary, store_own

import flows.compute.connection
import flows.progress.watching
import flows.runs.data
from flows.compute.places import Address
from flows.progress.watching import watch_progress
from ism_dask.observe import fit_progress


@pytest.fixture
def scheduler(cluster: Any) -> str:
    """Return the address of the cluster of all tests."""
    return str(cluster.scheduler_address)


@pytest.mark.long
def test_rows_that_workers_read_themselves(
    here: Command, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    median = ("--plain", "--json", "--sigma", "median")
    command = ("crossval", "wine", *median, "--first", 2)
    alone = here(*command).answer
    monkeypatch.setattr(flows.runs.data, "_IN_TASKS", 0)
    _same(here(*command, "--scheduler", scheduler).answer, alone)
    # In a container, where `ism-dask up` does not run.
    monkeypatch.setenv("ISM_DASK_SCHEDULER", scheduler)
    fitted = here("fit", "wine", *median, "--scheduler", "up").answer
    again = here("fit", "wine", *median, "--force").answer
    assert fitted["objective"] == pytest.approx(again["objective"], rel=1e-9)


def test_progress_comes_from_the_workers(
    here: Command, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_progress, "_LONG", -1.0)
    monkeypatch.setattr(flows.progress.watching, "_EVERY", 1e-4)
    store_own(3000)
    diary = Diary()
    command = ("fit", "own", "--sigma", "median", *EXACT, "--tol", 1e-12)
    with watch_progress(diary):
        ended = here(*command, "--max-iter", 9, "--plain", "--scheduler", scheduler)
        assert ended.status == 0
    assert any(re.search(r"iteration \d+, (pass \d+, )?rows \d+%", text) for text in diary.texts)
    assert diary.shares == sorted(diary.shares)


def test_workers_with_too_little_memory(here: Command, tmp_path: Path) -> None:
    from distributed import LocalCluster

    store_own(3000, 1500)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        memory_limit="300 MiB",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path),
    ) as narrow:
        ended = here("fit", "own", "--plain", *EXACT, "--scheduler", narrow.scheduler_address)
    assert re.search(r"^ism-dask: a .* needs \d+ MiB, but .* may take 20 MiB here", ended.failed(1))


def _same(found: dict, expected: dict) -> None:
    for one, two in zip(found["results"], expected["results"], strict=True):
        assert one["cost"] == pytest.approx(two["cost"], rel=1e-9)
        assert all(one[key] == two[key] for key in ("fold", "accuracy", "iterations", "engine"))


@pytest.mark.parametrize("listens", [False, True])
def test_nobody_or_something_else_at_that_address(
    here: Command, monkeypatch: pytest.MonkeyPatch, unused_port: int, listens: bool
) -> None:
    """Something else takes the connection and says nothing: as a web server would, for ever."""
    monkeypatch.setattr(flows.compute.connection, "ANSWER_SECONDS", 1.0)
    address = f"tcp://127.0.0.1:{unused_port}"
    with socket.create_server(("127.0.0.1", unused_port)) if listens else nullcontext():
        ended = here("fit", "wine", "--plain", "--scheduler", address)
    assert f"no Dask scheduler answers at {address}" in ended.failed(1)


def test_a_scheduler_without_workers(here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(Address, "wait", 1.0)
    with LocalCluster(
        n_workers=0,
        processes=False,
        host="127.0.0.1",
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as empty:
        address = empty.scheduler_address
        ended = here("fit", "wine", "--plain", "--scheduler", address)
        assert f"`dask worker {address}`" in ended.failed(1)
