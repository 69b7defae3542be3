"""Tables that the workers of a cluster project: the same bits as in one process."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from distributed import Client

import storage.tables.sources
from flows.compute.session import Session
from ism_dask.rows.raw import ColumnMoments
from storage import Model, ingest_table, save_model
from storage.tables.side_by_side import map_in_order

PARTS, ROWS = 9, 300
FORMATS = ("new.parquet", "new.csv")


def _frame(part):
    rng = np.random.default_rng(part)
    frame = pd.DataFrame(rng.normal(size=(ROWS, 4)), columns=list("abcd"))
    frame.insert(0, "id", [f"{part:03}-{row:03}" for row in range(ROWS)])
    return frame.assign(level=rng.choice(["n", "s"], ROWS))


@pytest.fixture
def run():
    """Save a run that projects the table."""
    data = ingest_table(_frame(0), "made", keep=("id",))
    X = data.X.read(0, len(data.X))
    components = np.array([[0.5, 0.5, 0.5, 0.5, 0.1, 0.0], [0.7, 0.1, -0.7, 0.0, 0.0, 0.3]])
    spread = ColumnMoments(1, 1.0, *np.array([[0.1, 0.2], [1, 4], [-2, -1], [1, 2]]))
    model = Model(
        components, X.mean(axis=0), X.std(axis=0), np.ones(2),
        feature_names=data.feature_names,
        table=(data.info.table or {})["schema"],
        statistics=spread,
    )  # fmt: skip
    save_model("mine", model)
    return "mine"


def _csv_folder(folder):
    for part in range(PARTS):
        _frame(part).to_csv(folder / f"part-{part}.csv", index=False)
    return folder


def _row_groups(folder):
    whole = pd.concat([_frame(part) for part in range(PARTS)])
    whole.to_parquet(folder / "whole.parquet", row_group_size=100, index=False)
    return folder / "whole.parquet"


def _hive_folder(folder):
    for part in range(PARTS):
        inside = folder / f"level={'ns'[part % 2]}"
        inside.mkdir(exist_ok=True)
        _frame(part).drop(columns="level").to_parquet(inside / f"{part}.parquet")
    return folder


@pytest.fixture
def source(tmp_path, monkeypatch, request):
    """Write a table in many pieces, by the function that is the parameter, and return its path."""
    monkeypatch.setattr(storage.tables.sources, "_PIECE_ROWS", 100)
    (tmp_path / "table").mkdir()
    return getattr(request, "param", _csv_folder)(tmp_path / "table")


@pytest.fixture
def transform(here, cluster, run, source, tmp_path):
    """Project the table by this process or, into the folder "far", by the cluster."""
    (tmp_path / "far").mkdir()

    def command(out, *options):
        where = ("--cluster", cluster.scheduler_address) if out.startswith("far/") else ()
        return here("transform", run, source, "-o", tmp_path / out, *options, *where)

    return command


@pytest.mark.parametrize(
    ("source", "out"),
    list(product((_csv_folder, _row_groups, _hive_folder), FORMATS)),
    indirect=["source"],
)
def test_workers_write_the_same_bits(transform, source, tmp_path, out):
    alone, far = (transform(each, "--json").answer for each in (out, f"far/{out}"))
    assert {**alone, "out": ""} == {**far, "out": ""}
    assert alone["rows"] == PARTS * ROWS
    assert (tmp_path / out).read_bytes() == (tmp_path / "far" / out).read_bytes()
    if out == "new.csv":
        new = pd.read_csv(tmp_path / out)
        ids = [each for part in range(PARTS) for each in _frame(part)["id"]]
        assert sorted(new["id"]) == ids
        assert (list(new["id"]) == ids) or source.name == "table"


def test_workers_need_memory_for_the_model(transform, monkeypatch):
    for name in ("_SMALL_WORK", "_MEMORY_SHARE"):
        monkeypatch.setattr(f"flows.compute.session.{name}", 0)
    assert "give the workers more memory" in transform("far/new.parquet").failed(1)


def test_a_stored_data_set_has_the_same_bits(here, cluster, run, tmp_path):
    for name, options in (("a", ()), ("b", ("--cluster", cluster.scheduler_address))):
        ended = here("transform", run, "made", "-o", tmp_path / f"{name}.npy", *options)
        assert ended.status == 0, ended
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    command = ("transform", run, "made", "-o", tmp_path / "c.npy", "--cluster", "x.toml")
    assert "no such file" in here(*command).failed(2).lower()


def _die_in_the_next_piece():
    """Let this worker be killed after the first batch that it reads."""
    from storage.tables.sources import Part

    batches = Part.batches

    def cut_off(self, columns):
        yield next(batches(self, columns))
        os.kill(os.getpid(), signal.SIGKILL)

    Part.batches = cut_off  # type: ignore[method-assign]


@pytest.mark.parametrize("small", [2**21, 0])
def test_a_piece_of_a_killed_worker_is_projected_again(
    transform, cluster, tmp_path, monkeypatch, small
):
    out = "new.parquet"
    monkeypatch.setattr("flows.compute.session._SMALL_WORK", small)
    alone = transform(out, "--json").answer
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        before = client.run(os.getpid)
        client.run(_die_in_the_next_piece, workers=[min(before)])
    far = transform(f"far/{out}", "--json").answer
    assert {**alone, "out": ""} == {**far, "out": ""}
    assert (tmp_path / out).read_bytes() == (tmp_path / "far" / out).read_bytes()
    assert [each.name for each in (tmp_path / "far").iterdir() if each.name != ".lock"] == [out]
    with pytest.raises(ProcessLookupError):
        os.kill(before[min(before)], 0)


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (
            [7],
            {"level": "west", "a": np.nan},
            "'level' has 'west', which it did not have before; 'a' has no value in 2 rows",
        ),
        ([0], {"b": "much"}, "the column 'b' has 'much' among values of type double"),
        ([4, 11], dict.fromkeys("abcd", 1.7e308), "'the projection' is infinite or too large in 4"),
    ],
)
def test_rows_that_do_not_fit_give_the_same_error(
    transform, source, tmp_path, rows, changes, message
):
    out = "new.parquet"
    for part in (6, 7):
        frame = _frame(part).astype(object)
        frame.loc[rows, [*changes]] = [*changes.values()]
        frame.to_csv(source / f"part-{part}.csv", index=False)
    paths = [tmp_path / out, tmp_path / "far" / out]
    for path in paths:
        path.write_text("as it was")
    alone = transform(out, "--force").failed(1)
    assert message in alone
    assert transform(f"far/{out}", "--force").failed(1) == alone
    for path in paths:
        assert path.read_text() == "as it was"
        assert not [*path.parent.glob(".new*")]


def test_columns_that_do_not_fit_are_listed_before_any_piece(transform, source, tmp_path):
    for part in range(PARTS):
        wrong = _frame(part).rename(columns={"a": "e", "b": "f"})
        wrong.to_csv(source / f"part-{part}.csv", index=False)
    message = transform("far/new.csv").failed(1)
    assert "lacks 'a', 'b'; it has the unknown columns 'e', 'f'" in message
    assert not (tmp_path / "far" / "new.csv").exists()


def test_few_pieces_wait_at_one_time():
    waiting, most, lock = 0, 0, Lock()

    def work(number):
        nonlocal waiting, most
        with lock:
            waiting += 1
            most = max(most, waiting)
        return number

    client = SimpleNamespace(nthreads=lambda: {"one": 1, "other": 2})
    with ThreadPoolExecutor(3) as executor:
        taken = []
        most_waiting = partial(Session._most_waiting, SimpleNamespace(client=client))
        for number in map_in_order(executor, work, range(50), most_waiting):
            taken.append(number)
            with lock:
                waiting -= 1
    assert taken == list(range(50))
    assert most <= 2 * 3 + 1
