"""Tables of one's own on the command line: from a file to new features in a file."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from support import EXACT

from flows.results.runs import IngestResult
from flows.runs.columns_read import ingest_summary
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.kernels import Gaussian
from ism_dask.solvers import ISM
from storage import TableError, load_model, open_dataset, save_model

N = 200
DEPENDENCE = ("--criterion", "dependence", "--sigma", "median")
# The names of new features by prediction, and by dependence.
NEW, BY_HSIC = ([f"{kind}ikdr{k}" for k in range(2)] for kind in ("predictive", "supervised"))


@pytest.fixture
def sales(tmp_path):
    """Write sales.csv, and return its rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(N), "age": rng.integers(18, 90, N)})
    frame["income"] = rng.normal(size=N)
    frame["region"] = rng.choice(["north", "south", "east"], N)
    frame["member"] = rng.random(N) > 0.5
    frame["churned"] = np.where(frame["income"] * (frame["member"] - 0.5) > 0, "yes", "no")
    frame.to_csv(tmp_path / "sales.csv", index=False)
    return frame


def _fit(here, tmp_path, *options):
    path = tmp_path / "sales.csv"
    assert here("ingest", path, "--label", "churned", "--keep", "id", "--plain").status == 0
    assert here("fit", "sales", "-q", 2, "--run", "two", "--plain", *options).status == 0


@pytest.fixture
def fitted(here, sales, tmp_path):
    """Return the rows of sales.csv, which is stored and fitted as the run "two"."""
    _fit(here, tmp_path, *DEPENDENCE)
    return sales


def test_columns_that_are_read_alike_share_a_line(here, tmp_path):
    genes = pd.DataFrame(np.ones((12, 200)), columns=[f"gene_{k}" for k in range(200)])
    ages = [np.nan] * 3 + [50.0] * 9
    genes.assign(age=ages, sick=[True, False] * 6).to_parquet(tmp_path / "genes.parquet")
    options = ("--label", "sick", "--missing", "mean", "--dry-run")
    shown = here("ingest", tmp_path / "genes.parquet", *options).words
    assert "gene_0 to gene_199 0 200 numbers" in shown
    assert "gene_1 " not in shown
    assert "age 3 number; gaps filled" in shown


def test_a_table_of_few_rows_is_fitted_without_intervals_and_is_not_sure(here, sales, tmp_path):
    table = sales.drop(columns=["id", "region"]).assign(w=np.arange(N) < 15)
    table.drop(columns="w")[:15].to_csv(tmp_path / "few.csv", index=False)
    table.to_csv(tmp_path / "weighted.csv", index=False)
    pd.concat([table[:15]] * 2).drop(columns="w").to_csv(tmp_path / "copies.csv", index=False)
    for name, options in (("few", ()), ("weighted", ("--weights", "w")), ("copies", ())):
        here("ingest", tmp_path / f"{name}.csv", "--label", "churned", *options, "--plain")
        shown = here("fit", name, "-q", 1, "--plain")
        assert shown.status == 0, shown.err
        assert "Sure no" in shown.words
        assert "neither unseen rows nor intervals have judged W" in shown.words
    start = ("fit", "few", "--start-from", "few-gaussian-q1", "--plain")
    for option, words in {
        ("-q", "2"): "`--components` 1",
        ("--kernel", "linear"): "`--kernel` gaussian",
        ("--sigma", "3"): "`--sigma` None",
        ("--criterion", "dependence"): "`--criterion` prediction",
    }.items():
        message = here(*start, *option, "--run", "more").failed(2)
        assert f"`--start-from` is 'few-gaussian-q1', a fit with {words}" in message
    save_model("made", replace(load_model("few-gaussian-q1"), config={}, metrics={}))
    for name, source, problem in (
        ("made", "few", "no run of `ism-dask fit`"),
        ("few-gaussian-q1", "wine", "fitted to other columns than wine has"),
    ):
        said = here("fit", source, "--start-from", name, "--plain").failed(2)
        assert f"`--start-from` is {name!r}, {problem}; name another run" in said
    assert "damaged" not in here("runs").out
    # Its number of new features is that of the run.
    assert "there is a run 'few-gaussian-q1' already" in here(*start).failed(1)


def test_the_label_of_a_stored_table_has_the_name_of_its_column(here, sales, tmp_path):
    table = tmp_path / "left.csv"
    sales.rename(columns={"churned": "left us?"}).to_csv(table, index=False)
    assert here("ingest", table, "--label", "left us?", "--drop", "id", "--plain").status == 0
    for source in ("left", table):
        words = ("fit", source, "--label", "left us?", "-q", 1, "--plain", "--force", "--json")
        assert here(*words, *DEPENDENCE).answer["label"] == "left_us_"


def test_three_commands_from_a_table_to_new_features(here, sales, tmp_path):
    _fit(here, tmp_path, "--sigma", 2)
    data = open_dataset("sales")
    X = data.X.read(0, N)
    expected = PredictiveIKDR(2, kernel=Gaussian(2.0), random_state=0).fit(X, data.y).transform(X)
    shuffled, new = sales[["member", "region", "income", "age", "id"]], tmp_path / "new.parquet"
    shuffled.to_parquet(new)
    assert_allclose(load_model("two").transform(shuffled), expected, atol=1e-9)
    for kind in ("parquet", "csv", "feather"):
        assert here("transform", "two", new, "-o", tmp_path / f"out.{kind}").status == 0
        written = getattr(pd, f"read_{kind}")(tmp_path / f"out.{kind}")
        assert list(written) == ["id", *NEW]
        assert_allclose(written[NEW], expected, atol=1e-9)
        assert (written["id"] == sales["id"]).all()
    message = here("transform", "two", new, "-o", tmp_path / "x.npy").failed(1)
    assert "expected" in message or "write .parquet or .csv" in message
    # A data set that is stored goes by the names of its columns, too.
    assert here("ingest", new, "--drop", "id", "--plain").status == 0
    assert here("transform", "two", "new", "-o", tmp_path / "x.npy").status == 0
    assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-9)
    shuffled.rename(columns={"age": "years"}).to_parquet(tmp_path / "old.parquet")
    assert here("ingest", tmp_path / "old.parquet", "--drop", "id", "--plain").status == 0
    assert "it lacks 'age'" in here("transform", "two", "old", "-o", tmp_path / "y.npy").failed(1)


def test_rows_that_do_not_fit_are_listed_at_once(here, fitted, tmp_path):
    source, out = tmp_path / "new.csv", tmp_path / "out.csv"
    wrong = fitted.rename(columns={"age": "years"}).assign(income="high", region="west")
    wrong.to_parquet(table := tmp_path / "new.parquet")
    message = here("transform", "two", table, "-o", out).failed(1)
    assert "lacks 'age'" in message
    assert "unknown columns 'years'" in message
    assert "string in 'income', which was a number" in message
    assert "'region' has 'west', which it did not have before" in message
    ignoring = ("-o", out, "--unseen", "ignore")
    message = here("transform", "two", table, *ignoring).failed(1)
    assert "which was a number" in message
    assert "west" not in message
    wrong = fitted.assign(region=["west", "centre"] * (N // 2))
    wrong.loc[:2, "income"] = np.nan
    wrong.to_csv(source, index=False)
    message = here("transform", "two", source, "-o", out).failed(1)
    assert "'region' has 'centre', 'west'" in message
    assert "'income' has no value in 3 rows" in message
    assert not out.exists()
    fitted.assign(region="west").to_csv(source, index=False)
    assert here("transform", "two", source, *ignoring).status == 0
    data = open_dataset("sales")
    X = data.X.read(0, N)
    X[:, [name.startswith("region=") for name in data.feature_names or ()]] = 0.0
    assert_allclose(pd.read_csv(out)[BY_HSIC], load_model("two").transform(X), atol=1e-9)


def test_rows_of_a_built_in_data_set_come_from_it_and_from_files(here, fitted_wine, tmp_path):
    """Columns with names may be in any order, with the label among them; others are in theirs."""
    data = open_dataset("wine")
    rows = pd.DataFrame(data.X.read(0, 178), columns=list(data.feature_names or ()))
    expected = load_model(fitted_wine).transform(rows)
    matrix, table, bare = (tmp_path / name for name in ("in.npy", "in.csv", "bare.csv"))
    np.save(matrix, rows)
    named = rows[rows.columns[::-1]].assign(cultivar=data.y)
    named.to_csv(table, index=False)
    rows.to_csv(bare, index=False, header=False, sep=";", decimal=",")
    text, numbers = tmp_path / "out.csv", tmp_path / "out.npy"
    for source, out in (
        ("wine", text), ("wine", numbers), (table, text), (matrix, numbers), (bare, text),
    ):  # fmt: skip
        answer = here("transform", fitted_wine, source, "-o", out, "--force", "--json").answer
        assert answer["rows"] == 178
        assert answer["ignored"] == ["cultivar"] * (source is table)
        written = np.load(out) if out is numbers else pd.read_csv(out)
        assert_allclose(written, expected, rtol=0, atol=1e-9)
    assert list(pd.read_csv(text)) == [f"predictiveikdr{k}" for k in range(expected.shape[1])]


@pytest.mark.usefixtures("sales")
def test_what_a_table_is_needed_for_or_ingest_alone_is_named(here, tmp_path):
    for option in (("--label", "cultivar"), ("--dry-run",), ("--weights", "ash")):
        message = here("ingest", "wine", *option, "--plain").failed(2)
        assert f"`{option[0]}` is given, but 'wine' is no table" in message
    assert "no file matches" in here("ingest", tmp_path / "x*.csv", "--plain").failed(1)
    path = tmp_path / "sales.csv"
    assert "`--target` is 'both'" in here("ingest", path, "--target", "both").failed(2)
    assert "built-in data set" in here("ingest", path, "--name", "wine").failed(1)
    for name in ("../x", "a,b", "v1.csv"):
        assert f"`--name` is '{name}'" in here("ingest", path, "--name", name).failed(2)
    path.write_text(path.read_text().replace(",yes", ",").replace("yes,", ","))
    message = here("fit", path, "--label", "churned", "--plain").failed(1)
    assert f"`ism-dask ingest {path}` has options for that" in message


@pytest.mark.usefixtures("sales")
def test_a_wide_table_fits_a_terminal_and_a_dry_run_needs_no_server(here, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("flows.cli.compute.has_prefect", None)  # it would look for a server
    path = tmp_path / f"{'table' * 20}.csv"
    frame = pd.read_csv(tmp_path / "sales.csv").rename(columns={"age": "age " * 60})
    frame.to_csv(path, index=False)
    shown = here("ingest", path, "--label", "churned", "--dry-run").out
    assert "…" in shown
    assert "number" in shown
    assert here("ingest", path, "--label", "churned", "--plain").status == 0
    assert max(map(len, here("datasets").out.splitlines())) <= 80


@pytest.mark.usefixtures("fitted")
def test_a_table_is_listed_shown_and_removed(here, tmp_path):
    listed = here("datasets", "--json").answer["datasets"]
    wanted = {"name": "sales", "rows": N, "columns": 6, "labels": {"churned": 2}}
    assert sum(wanted.items() <= each.items() for each in listed) == 1
    shown = here("datasets", "sales")
    assert "passed through: id" in shown.out
    table = here("datasets", "sales", "--json").answer["table"]
    assert table["files"][0]["path"] in shown.out.replace("\n", "")
    assert table["schema"]["options"]["keep"] == ["id"]
    assert here("remove", "sales").status == 0
    # A model does not need the rows that it was fitted to.
    source = tmp_path / "sales.csv"
    assert here("transform", "two", source, "-o", tmp_path / "out.csv").status == 0


@pytest.mark.usefixtures("sales")
def test_a_file_whose_name_no_data_set_can_have_is_given_one(here, tmp_path):
    path = (tmp_path / "sales.csv").rename(tmp_path / "sälés 1.csv")
    words = (path, "--label", "churned", "--plain")
    assert f"{path} gives no name for the data set" in here("ingest", *words).failed(1)
    assert "has options for that, such as --force, --name" in here("fit", *words).failed(1)
    assert here("ingest", *words, "--name", "sales").status == 0


@pytest.mark.usefixtures("sales")
def test_a_path_serves_as_a_data_set(here, tmp_path):
    path = tmp_path / "sales.csv"
    options = ("--label", "churned", "--sigma", 2, "--plain", "--json", "--force")
    # Without its label, nothing is stored that would be in the way of the next try.
    assert "`--label` is not given; name the column" in here("fit", path, "--plain").failed(2)
    (tmp_path / "own.toml").write_text(f'[data]\nsource = "{path}"\n[fit]\n')
    assert "`data.label` is not given" in here("run", tmp_path / "own.toml", "--plain").failed(2)
    given = ("cluster", path, *options)
    first = here(*given).answer
    assert first["dataset"] == "sales"
    assert open_dataset("sales").class_names == {"churned": ("no", "yes")}
    misspelt = here("fit", path, "--label", "churnd", "--plain").failed(2)
    assert "there is no column 'churnd'; did you mean 'churned'?" in misspelt
    # So does another way to the file.
    other = tmp_path / "jobs" / ".." / "sales.csv"
    other.parent.parent.mkdir()
    assert here("cluster", other, *options).answer["dataset"] == "sales"
    # What was ingested in another way serves too, while the file is the same.
    here("ingest", path, "--label", "churned", "--drop", "id", "--force", "--plain")
    assert here(*given).answer["columns"] == first["columns"] - 1
    path.write_text(path.read_text() + "500,30,0.5,north,True,yes\n")
    assert "stored already" in here(*given).failed(1)


def test_no_command_writes_over_its_input(here, fitted, tmp_path):
    table, link = tmp_path / "sales.csv", tmp_path / "link.csv"
    before = table.read_bytes()
    link.symlink_to(table)
    (tmp_path / "parts").mkdir()
    new = (parts := link.with_name("parts")) / "new.csv"
    (parts / "a.csv").write_bytes(before)
    for out, *sources in (
        (table, table, link, tmp_path / "*.csv"),
        (link, table),
        (new, parts, f"{parts}/*.csv", f"{tmp_path}/**/*.csv", f"file://{parts}"),
    ):
        for source in sources:
            message = here("transform", "two", source, "-o", out, "--force").failed(2)
            assert "which the rows are read from; name another" in message
    assert [*parts.iterdir()] == [parts / "a.csv"]  # else the next command would read it
    run = 'run = "again"\n[data]\nsource = "sales.csv"\nlabel = "churned"\n[fit]\n'
    writes = f"{run}[[transform]]\nsource = 'b.csv'\nout = "
    text = f"{writes}'parts/new.csv'\n"  # the next run would read what this one writes
    of_parts = [text.replace("sales.csv", each) for each in ("./parts", "parts/*.csv")]
    for text in (f'report = "run.md"\n{run}', f"{writes}'sales.csv'\n", *of_parts):
        (tmp_path / "run.md").write_text(text)
        assert "which the run reads" in here("run", tmp_path / "run.md", "--plain").failed(2)
    assert table.read_bytes() == before


@pytest.mark.usefixtures("fitted")
def test_a_file_needs_a_folder_and_is_replaced_by_force_alone(here, tmp_path):
    for out, *command in (
        (tmp_path / "out.csv", "transform", "two", tmp_path / "sales.csv", "-o"),
        (tmp_path / "out.json", "report", "two", "-o"),
        (tmp_path / "out.toml", "init"),
    ):
        nowhere = tmp_path / "absent" / out.name
        said = here(*command, nowhere).failed(2)
        assert f"there is no folder {nowhere.parent}; make it first" in said
        out.write_text("of the user")
        assert "exists already; replace it with --force" in here(*command, out).failed(2)
        assert out.read_text() == "of the user"
        assert here(*command, out, "--force").status == 0
        assert out.read_text() != "of the user"
    page, pipe, file = (tmp_path / name for name in ("page.html", "pipe.csv", "own.toml"))
    page.write_text("of the user")
    file.write_text(f'report = "{page.name}"\n[data]\nsource = "sales"\n[fit]\n')
    assert "page.html exists already" in here("run", file, "--plain").failed(2)
    assert page.read_text() == "of the user"
    os.mkfifo(pipe)
    to_pipe = ("transform", "two", tmp_path / "sales.csv", "-o", pipe, "--force")
    assert "is a folder, pipe or device that exists" in here(*to_pipe).failed(2)
    assert pipe.is_fifo()


def test_levels_and_passed_columns_are_read_as_they_are(here, sales, tmp_path):
    sales["region"] = ["01", "1", "A", "B", "true"] * (N // 5)
    sales["id"] = [f"{k:03}" for k in range(N - 1)] + [str(2**60 + 1)]
    sales.to_csv(tmp_path / "sales.csv", index=False)
    _fit(here, tmp_path, *DEPENDENCE)
    for level in ("01", "1", "true"):
        rows = sales[sales["region"] == level]
        rows.to_csv(tmp_path / "new.csv", index=False)
        out = tmp_path / "out.csv"
        assert here("transform", "two", tmp_path / "new.csv", "-o", out, "--force").status == 0
        assert list(pd.read_csv(out, dtype=str)["id"]) == list(rows["id"])
        assert_allclose(pd.read_csv(out)[BY_HSIC], load_model("two").transform(rows), atol=1e-9)


def test_columns_and_rows_left_out_are_noted(here, sales, tmp_path):
    path, out = tmp_path / "sales.csv", tmp_path / "out.csv"
    sales.loc[:9, "age"] = np.nan
    sales.to_csv(path, index=False)
    here("ingest", path, "--label", "churned", "--drop", "id", "--missing", "drop", "--plain")
    assert here("fit", "sales", "-q", 2, "--run", "two", "--plain", *DEPENDENCE).status == 0
    ended = here("transform", "two", path, "-o", out)
    assert f"{N - 10} rows" in ended.out
    assert "10 left out" in ended.out
    assert "ignored: id, churned (labels, or left out of the fit)" in ended.out
    written = pd.read_csv(out)
    assert list(written) == BY_HSIC
    assert_allclose(written, load_model("two").transform(sales[10:]), atol=1e-9)
    answer = here("transform", "two", path, "-o", out, "--force", "--json").answer
    assert answer["ignored"] == ["id", "churned"]
    with pytest.raises(TableError, match="10 rows lack a value"):
        load_model("two").transform(sales)


def test_hints_of_what_was_overlooked(here, sales, tmp_path):
    sales.insert(1, "customerId", np.random.default_rng(0).permutation(10**6)[:N])
    path = tmp_path / "verkauf.csv"
    sales.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-16")
    answer = here("ingest", path, "--dry-run", "--json").answer
    assert ingest_summary(IngestResult.from_json(answer)).opening == (
        f"{N} rows were read with 10 columns of numbers and no label; 2 warnings speak against it."
    )
    shown = here("ingest", path, "--dry-run").words
    for part in (
        "columns are separated by semicolons; decimals have commas; the encoding is utf-16",
        "'id', 'customerId' look like a number of each row, which explains nothing: --drop",
        "no --label is given, and 'churned' looks like one",
    ):
        assert part in shown
    shown = here("ingest", path, "--label", "churned", "--drop", "id,customerId", "--dry-run").out
    assert "look" not in shown


def test_how_far_new_rows_are_is_reported(here, fitted, tmp_path):
    model, out = load_model("two"), tmp_path / "new.parquet"
    learned = model.transform(fitted)
    same = here("transform", "two", tmp_path / "sales.csv", "-o", out, "--json").answer["drift"]
    assert [each["share_outside"] for each in same] == [0.0, 0.0]
    assert_allclose([each["mean_shift"] for each in same], 0, atol=1e-6)
    moved = fitted.assign(income=fitted["income"] * 1.5 + 1, age=fitted["age"] + 30)
    moved.to_parquet(tmp_path / "moved.parquet")
    ended = here("transform", "two", tmp_path / "moved.parquet", "-o", out, "--force", "--json")
    new = model.transform(moved)
    # Rows at the edge of the range, as rows of few levels are, may be rounded to either side.
    slack = 1e-5 * (learned.max(axis=0) - learned.min(axis=0))
    low, high = learned.min(axis=0) - slack, learned.max(axis=0) + slack
    outside = ((new < low) | (new > high)).mean(axis=0)
    shift = (new.mean(axis=0) - learned.mean(axis=0)) / learned.std(axis=0)
    assert_allclose([each["share_outside"] for each in ended.answer["drift"]], outside, atol=1e-12)
    assert_allclose([each["mean_shift"] for each in ended.answer["drift"]], shift, rtol=1e-5)
    shown = here("transform", "two", tmp_path / "moved.parquet", "-o", out, "--force").out
    assert f"{outside[0]:.1%}" in shown


def test_a_folder_of_parts_is_one_table(here, fitted, tmp_path):
    for region, rows in fitted.groupby("region"):
        folder = tmp_path / "parts" / f"region={region}"
        folder.mkdir(parents=True)
        rows.drop(columns="region").to_parquet(folder / "a.parquet")
    out = tmp_path / "new.parquet"
    assert here("transform", "two", tmp_path / "parts", "-o", out, "--json").answer["rows"] == N
    in_order = pd.concat([rows for _, rows in fitted.groupby("region")])
    new = pd.read_parquet(out)
    assert list(new["id"].astype(int)) == list(in_order["id"])
    assert_allclose(new[BY_HSIC], load_model("two").transform(in_order))
    rows[:0].drop(columns="region").to_parquet(tmp_path / "parts" / "region=south" / "a.parquet")
    fewer = here("transform", "two", tmp_path / "parts", "-o", tmp_path / "fewer.csv", "--json")
    assert fewer.answer["rows"] == (fitted["region"] != "south").sum()


def test_a_bare_name_is_a_data_set_whatever_folders_there_are(here, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sales").mkdir()
    fitted[:9].to_csv("sales/sales.csv", index=False)
    text = 'run = "again"\n[data]\nsource = "../sales.csv"\nlabel = "churned"\nkeep = "id"\n'
    Path("sales/run.toml").write_text(f'{text}[fit]\ncriterion = "dependence"\nsigma = 2\n')
    assert here("run", "sales/run.toml", "--plain").status == 0
    for source, rows in (("sales", N), ("./sales", 9)):
        ended = here("transform", "two", source, "-o", "new.csv", "--force", "--json")
        assert ended.answer["rows"] == rows
    here("init", "sales/other.toml", "--data", "sales/sales.csv", "--label", "churned")
    here("init", "other.toml", "--data", "sales/", "--label", "churned")
    for file, source in (("sales/other.toml", "sales.csv"), ("other.toml", "./sales")):
        assert f'\nsource = "{source}"\n' in Path(file).read_text()


def test_several_numbers_are_explained_together(here, sales, tmp_path):
    sales.assign(spent=sales["income"] ** 2).to_csv(tmp_path / "sales.csv", index=False)
    labels = ("--label", "income,spent,region", "--plain")
    assert here("ingest", tmp_path / "sales.csv", *labels).status == 0
    (listed,) = here("datasets", "sales", "--json").answer["datasets"]
    assert listed["labels"] == {"income": None, "spent": None, "region": 3}
    words = ("fit", "sales", *DEPENDENCE, "--plain", "--json", "--label")
    both = here(*words, "income, spent").answer
    assert both["label"] == "income,spent"
    here("report", both["run"], "-o", tmp_path / "both.html")
    assert "income along new feature 1" in (tmp_path / "both.html").read_text()
    said = here(*words, "income,region").failed(2)
    assert "`--label` has 'region', whose classes are east, north, south; expected finite" in said
    assert "`--label` is 'size'" in here(*words, "income,size").failed(2)
    balanced = here(*words, "income", "--balanced").failed(2)
    assert "`--balanced` is for classes, but the label 'income' is read as numbers" in balanced


def test_a_row_of_weight_two_is_two_rows(here, tmp_path):
    """Ingested with weights, a table has the fit of the table in which rows are repeated."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(150, 4)), columns=list("abcd"))
    table["sold"] = np.where(table["a"] + table["b"] ** 2 > 0.5, "yes", "no")
    repeated = table.loc[table.index.repeat(weights := rng.integers(0, 4, 150))]
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    table.assign(w=weights).to_csv(tmp_path / "weighted.csv", index=False)
    label = ("--label", "sold", "--plain", "--weights")
    assert "weights of rows: w" in here("ingest", tmp_path / "weighted.csv", *label, "w").out
    words = ("-q", 2, "--criterion", "dependence", "--plain", "--json", "--run")
    expected = here("fit", tmp_path / "repeated.csv", "--label", "sold", *words, "a").answer
    answer = here("fit", "weighted", *words, "b").answer
    assert (answer["columns"], answer["rows"], answer["label"]) == (4, 150, "sold")
    assert_allclose(answer["objective"], expected["objective"], rtol=1e-9)
    assert_allclose(load_model("b").components, load_model("a").components, atol=1e-6)
    clustered = here("cluster", "weighted", "-k", 2, "--max-outer", 1, "--plain")
    assert "the weights 'w' do not count: clusters have each row once" in clustered.out
    weighted = here("ingest", tmp_path / "repeated.csv", *label, "sold").failed(2)
    assert "which is the label" in weighted


def test_columns_to_avoid_and_given_ones_are_no_features(here, sales, tmp_path):
    """A whole number of many values, such as an age, is a number; a text is a class."""
    words = ("--label", "churned", "-q", 1, "--plain", *DEPENDENCE)
    table = tmp_path / "sales.csv"
    said = here("fit", table, "--plain", "--avoid", "age").failed(2)
    assert "`--label` is not given; name the column of" in said
    (tmp_path / "same.csv").write_bytes(table.read_bytes())
    twice = ("fit", tmp_path / "same.csv", *words, "--avoid", "age", "--groups", "age")
    assert "expected 1 to" in here(*twice, "-q", 99).err
    ended = here("fit", table, *words, "--avoid", "age,region", "--run", "fair")
    assert "Dependence on age,region" in ended.out
    data, fair = open_dataset("sales"), load_model("fair")
    assert set(data.labels) == {"churned", "age", "region"}
    assert set(data.feature_names or ()) == {"id", "income", "member"}
    rows, y = data.X.read(0, N), (sales["churned"] == "yes").astype(int)
    side = sales[["age", "region"]].assign(age=sales["age"].astype(float))
    median = SupervisedIKDR(1, kernel=Gaussian("median"))
    direct = clone(median).fit(rows, y, avoid=side)
    assert_allclose(fair.components, direct.components_, atol=1e-3)
    avoided = fair.metrics["avoided"]["new_features"]
    assert avoided == pytest.approx(direct.report_.avoided.new_features, abs=1e-3)
    assert here("fit", "sales", *words, "--given", "age", "--run", "known").status == 0
    known = clone(median).fit(rows, y, given=sales["age"])
    assert_allclose(load_model("known").components, known.components_, atol=1e-3)
    few = here("crossval", "sales", *words, "--groups", "region")
    assert "groups; expected one for each fold or more" in few.failed(2)
    twice = here("crossval", "sales", *words, "--groups", "age,region").failed(2)
    assert "`--groups` is 'age,region'; expected one label" in twice
    predicted = ("fit", "sales", "--label", "churned", "-q", 1, "--sigma", 2, "--run", "grouped")
    assert here(*predicted, "--plain", "--groups", "age").status == 0
    grouped = PredictiveIKDR(1, kernel=Gaussian(2.0)).fit(rows, y, groups=sales["age"])
    assert_allclose(load_model("grouped").components, grouped.components_, atol=1e-3)
    assert "is the label to explain" in here("fit", "sales", *words, "--given", "churned").failed(2)
    assert "`--avoid` is 'sex'" in here("fit", "sales", "--avoid", "sex", "--plain").failed(2)


def test_the_target_is_that_of_the_label_beside_columns_to_avoid(here, sales, tmp_path):
    options = ("--target", "numbers", "--avoid", "region", "--plain", "-q", 1, *DEPENDENCE)
    assert here("fit", tmp_path / "sales.csv", "--label", "age", *options).status == 0
    (tmp_path / "own.toml").write_text(
        '[data]\nsource = "sales.csv"\nlabel = "age"\ntarget = "numbers"\nname = "own"\n'
        '[fit]\navoid = "region"\nn_components = 1\ncriterion = "dependence"\n'
    )
    assert here("run", tmp_path / "own.toml", "--plain").status == 0
    for name in ("sales", "own"):
        labels = open_dataset(name).labels
        assert {key: y.dtype.kind for key, y in labels.items()} == {"age": "f", "region": "u"}


def test_whole_numbers_stored_as_classes_are_explained_as_the_numbers_they_are(here, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    price = np.where(X[:, 0] > 0.5, 400, np.where(X[:, 1] > 0, 20, 10))
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(price=price, place="here")
    frame.loc[0, "place"] = "there"
    frame.to_csv(tmp_path / "flats.csv", index=False)
    labels = ("--label", "price,place", "--plain")
    assert here("ingest", str(tmp_path / "flats.csv"), *labels).status == 0
    options = ("--plain", "--tol", "1e-9", "-q", "1", "--sigma", "median", *EXACT)
    assert here("fit", "flats", "--target", "gaussian", "--run", "flats", *options).status == 0
    exact = {"engine": "exact", "solver": ISM(tol=1e-9)}
    model = SupervisedIKDR(1, kernel=Gaussian("median"), target="gaussian", **exact)
    model.fit(X, price.astype(float))
    assert_allclose(load_model("flats").components, model.components_, atol=1e-5)
    said = here("fit", "flats", "--label", "place", "--target", "gaussian", *options).failed(2)
    assert "whose classes are here, there; expected finite" in said
