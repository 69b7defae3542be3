"""The readers of files: what fills a home for each, and all that reads one of its files."""

import re
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import shop
import stock

import storage
from flows.cli import run_file, stored
from flows.cli.output import Output
from flows.compute.places import read_cluster
from flows.errors import FlowError
from flows.refreshes.refresh import refresh
from flows.reports.pages import write_index, write_report
from flows.runs.inventory import check_files
from flows.runs.published import History
from flows.runs.transform import transform_rows
from flows.services.leases import find_lease
from flows.services.liveness import RunReceipt, receipts_to_send
from flows.services.service import ServiceRecord, live_record, services_folder
from flows.settings.base import TransformSettings
from flows.settings.refresh import RefreshSettings
from flows.settings.run_file import FLOWS, read_run_file
from flows.settings.run_file_text import commented_run_file
from storage.refreshes import is_record, record_path
from storage.runs import LEASE
from storage.table_ingestion import preview_table
from storage.tables.formats import open_table

ROOT = Path(__file__).parents[2]
OUTPUTS = (Output(), Output(json=True))


def make_tables(*names, home):
    """Write tables in the formats of their names, and save a model of their columns."""
    frame, paths = stock.random_table(60, 0), [home / name for name in names]
    matrix, is_matrix = frame[[*"abcd"]].to_numpy(), paths[0].suffix == ".npy"
    for path in paths:
        if is_matrix:
            np.save(path, matrix)
        else:
            stock.write_table(frame, path)
    schema = preview_table(open_table(matrix if is_matrix else frame), options_of(paths[0]))
    d = len(schema.encoded_names)
    parts = (np.ones((2, d)), np.zeros(d), np.ones(d), np.ones(2))
    described = {"feature_names": schema.encoded_names, "table": schema.to_json()}
    storage.save_model("fitted", storage.Model(*parts, **described))
    return paths


def options_of(path):
    """Return how a table is read."""
    return storage.TableOptions(label=() if path.suffix == ".npy" else ("y",), missing="mean")


def read_table(path):
    """Yield what stores a table, and what projects its rows."""
    given = {key: value for key, value in asdict(options_of(path)).items() if value}
    yield partial(storage.ingest_table, path, "fuzzed", force=True, **given)
    settings = TransformSettings(source=str(path), out=path.parent / "new.csv", unseen="ignore")
    yield partial(transform_rows, "fitted", settings)


def make_settings(home):
    """Write run files with all settings of each flow, and the cluster files of the docs."""
    texts = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/clusters.md").read_text(), re.DOTALL)
    for number, text in enumerate(texts):
        (home / f"cluster-{number}.toml").write_text(text)
    for flow in FLOWS:
        text = commented_run_file(flow, "shop.csv", "y", full=True)
        settings = re.sub(r"^# (\w+ = (?!.*# for example))", r"\1", text, flags=re.MULTILINE)
        settings = (
            re.sub(r"^# (\[\[?\w+\]?\]$)", r"\1", settings, flags=re.MULTILINE)
            if flow == "fit"
            else settings.partition("# [[transform]]")[0]
        )
        (home / f"{flow}.toml").write_text(settings)
    return sorted(home.glob("*.toml"))


def read_settings(path):
    """Yield what reads a run file or a cluster file."""
    is_cluster = path.name.startswith("cluster-")
    yield lambda: read_cluster(path) if is_cluster else read_run_file(path).stored_as("wine")


def make_data_sets(home):
    """Store tables with a class and with numbers as the label, and a data set of arrays."""
    frame = stock.random_table(60, 0)
    stock.write_table(frame, home / "shop.csv")
    shop = storage.ingest_table(home / "shop.csv", "shop", label="y")
    weighted = frame.assign(weight=frame["d"].abs())
    numbers = storage.ingest_table(
        weighted, "numbers", label="a", weights="weight", missing="indicator"
    )
    return [shop.path, numbers.path, stock.store_small()]


def read_data_set(path):
    """Yield what reads a data set, checks, lists and describes it, and would append to it."""
    yield lambda: [
        (data.X.read(0, len(data.X)), data.y) for data in [storage.open_dataset(path.name)]
    ]
    yield partial(check_files, [path.name])
    yield from (partial(stored.datasets, path.name, output=output) for output in OUTPUTS)
    yield partial(storage.ingest_table, path.parents[1] / "shop.csv", path.name, label="y")


def make_runs(home):
    """Compute a small run of every kind, and return the folders of their results."""
    make_data_sets(home)
    settings = {"cluster": "n_clusters = 2", "crossval": "folds = 2"}
    for kind in FLOWS:
        text = f'run = "{kind}"\n[data]\nsource = "shop"\n[{kind}]\nn_components = 2\n'
        (home / "run.toml").write_text(text + settings.get(kind, ""))
        run_file.run(home / "run.toml", plain=True, output=Output(quiet=True))
    return [storage.run_folder(kind) / "result" for kind in FLOWS]


def read_run(path):
    """Yield all that shows a run, alone or in a list, and what gives rows its new features."""
    name, home, load = path.parent.name, path.parents[2], storage.load_model
    yield lambda: write_index(home)
    yield lambda: write_report(name)
    for output, page in zip(OUTPUTS, ("report.md", "report.json"), strict=True):
        yield partial(stored.runs, output=output)
        yield partial(stored.show, name, output=output)
        yield partial(stored.report, name, out=home / page, output=output)
    yield partial(check_files, [name])
    yield lambda: load(name).transform(np.ones((3, 6)))
    yield lambda: load(name).transform(stock.random_table(5, 1).drop(columns="y"))
    settings = TransformSettings(source=str(home / "shop.csv"), out=home / "new.csv")
    yield partial(transform_rows, name, settings)


def _resumed(run):
    """Return the settings with which `ism-dask resume` would go on."""
    lease = find_lease(run)
    kind = FLOWS.get(lease.kind) if lease else None
    return lease and kind and kind.parse({**lease.settings, "run": run})


def make_records(home):
    """Write records of every kind: a lease, partial results, a service, a receipt, a history."""
    with patch.object(storage.PartialResults, "clear"):  # those of whole runs stay
        make_runs(home)
    stock.stock()
    yield stock.lease().path
    for name in (*FLOWS, "under-way"):
        yield from sorted(storage.PartialResults.of_run(name).folder.glob("[!.]*"))
    services_folder().mkdir()
    service = ServiceRecord(name="dask-scheduler", address="tcp://a", page="b")
    page = {"key": "key", "data": "data"}
    receipt = RunReceipt(run="id", api="api", pid=2**22 + 1, page=page)
    for record in (service, receipt):
        record.write()
        yield record.path
    file = shop.open_shop(home, shop.QUICK_FILE.replace('name = "shop"', 'name = "parts"'))
    for part, rows, shift in (("b", 40, 0.0), ("c", 50, 0.0), ("d", 400, 30.0)):
        refresh(RefreshSettings(file=str(file)))
        shop.write_part(home, part, rows, shift)
    with suppress(FlowError):
        refresh(RefreshSettings(file=str(file)))  # suspicious
    yield record_path("sales", 1)


def read_record(path):
    """Yield what reads a record of a kind, alone and in lists."""
    if is_record(path.name):
        for output, page in zip(OUTPUTS, ("history.html", "history.md"), strict=True):
            yield partial(run_file.history, "sales", out=path.parents[2] / page, output=output)
        yield lambda: [(each.before, each.file, each.last_made) for each in [History("sales")]]
        yield partial(check_files, ["sales"])
    elif path.name == LEASE:
        yield partial(_resumed, "under-way")
        yield from (partial(stored.runs, output=output) for output in OUTPUTS)
        yield lambda: write_index(path.parents[2])
    elif path.is_dir():
        checkpoints = storage.Checkpoints.of_run(path.parents[1].name)
        yield lambda: [each.progress for each in [checkpoints.find()] if each]
        yield lambda: [checkpoints.read(number) for number in checkpoints.numbers]
        yield lambda: checkpoints.results.find(path.name, {"dataset": "small"})
        yield partial(check_files, [path.parents[1].name])
    else:
        yield lambda: live_record("dask-scheduler")
        yield lambda: list(map(asdict, receipts_to_send("api")))


# What fills an empty home and returns the files and folders to change, and what reads one of them.
READERS = {
    "csv": (partial(make_tables, "a.csv", "b.csv.gz"), read_table),
    "npy": (partial(make_tables, "a.npy"), read_table),
    "parquet": (partial(make_tables, "a.parquet"), read_table),
    "feather": (partial(make_tables, "a.feather"), read_table),
    "settings": (make_settings, read_settings),
    "data-set": (make_data_sets, read_data_set),
    "run": (make_runs, read_run),
    "records": (make_records, read_record),
}
