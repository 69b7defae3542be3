"""`ism-dask unfold`: coordinates of all rows as a saved run."""

import numpy as np
import pandas as pd
import pytest
from support import flown

from flows.reports.html import render_run
from flows.settings.unsupervised import UnfoldSettings
from ism_dask import ColoredMVU
from storage import load_unfolding, open_dataset, open_run, result_arrays


def test_coordinates_are_those_of_the_estimator(here):
    answer = here("unfold", "wine", "--plain", "--json", "--nu", "3").answer
    data = open_dataset("wine")
    model = ColoredMVU(nu=3.0).fit(data.X.read(0, 178), data.y)
    saved = result_arrays("wine-unfolding-q2")
    np.testing.assert_array_equal(saved["coordinates"], model.embedding_)
    np.testing.assert_array_equal(saved["values"], data.y)
    assert answer["label"] == "cultivar"
    assert answer["distance_error"] == model.distance_error_
    assert answer["eigenvalues"] == model.eigenvalues_.tolist()
    assert answer["converged"] is True
    assert answer["class_names"] == list(data.class_names["cultivar"])
    assert 0.5 < answer["same_class"] < 1
    assert open_run("wine-unfolding-q2").metrics["hsic"] == model.hsic_


def test_people_see_the_figures_and_a_page(here):
    words = here("unfold", "wine", "--plain", "--run", "seen", "--max-iter", "2", "--raw").words
    assert "Distance error" in words
    assert "did not converge. Raise --max-iter" in words
    assert "distances are nearly those of proline alone" in words
    page = render_run("seen")
    for words in ("178 of 178 rows by their coordinates", "eigenvalues of K", "Duality gap"):
        assert words in page
    assert page.count("image/svg+xml") >= 2
    assert "ism-dask unfold wine --raw --max-iter 2 --run seen-again" in page
    plain = here("unfold", "wine", "--plain", "--json", "--target", "none", "--run", "plain").answer
    assert plain["label"] == ""
    assert plain["same_class"] is None
    assert "values" not in result_arrays("plain")
    assert "rows by their coordinates." in render_run("plain")


def test_axes_that_are_of_no_use_are_told(here):
    seen = here("unfold", "wine", "--plain", "--nu", "0.01", "--target", "linear")
    assert "1 of 2 axes are used" in seen.words
    coordinates = result_arrays("wine-unfolding-q2")["coordinates"]
    assert coordinates.any(axis=0).tolist() == [True, False]
    placed = load_unfolding("wine-unfolding-q2").transform(open_dataset("wine").X.read(0, 3))
    np.testing.assert_array_equal(placed, coordinates[:3])


def test_several_labels_are_a_factor(here, tmp_path):
    rng = np.random.default_rng(0)
    rows, wrote = rng.normal(size=(60, 3)), rng.integers(0, 2, size=(60, 2))
    names = {"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2], "ann": wrote[:, 0]}
    pd.DataFrame({**names, "bob": wrote[:, 1]}).to_parquet(tmp_path / "papers.parquet")
    given = ("--label", "ann,bob", "--target", "factor", "--plain", "--json", "--run", "papers")
    answer = here("unfold", tmp_path / "papers.parquet", *given).answer
    model = ColoredMVU(target="factor").fit(rows, wrote)
    np.testing.assert_array_equal(result_arrays("papers")["coordinates"], model.embedding_)
    assert answer["hsic"] == model.hsic_
    assert answer["same_class"] is None
    assert answer["columns"] == 3
    assert "in the colours of ann" in render_run("papers")
    # The same labels, stored as classes.
    kinds = np.where(rows[:, 0] > 0, "x", "y")
    frame = pd.read_parquet(tmp_path / "papers.parquet").assign(kind=kinds)
    frame.to_parquet(tmp_path / "stored.parquet")
    named = ("--label", "ann,bob,kind", "--target", "classes", "--plain")
    assert here("ingest", tmp_path / "stored.parquet", *named).status == 0
    command = ("unfold", "stored", "--target", "factor", "--plain", "--run", "stored", "--label")
    assert here(*command, "ann,bob").status == 0
    np.testing.assert_array_equal(result_arrays("stored")["coordinates"], model.embedding_)
    assert "expected numbers that are finite" in here(*command, "ann,kind").failed(2)


def test_a_run_file_unfolds_a_table(here, tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    lines = ["a,b,c,y", *(",".join(map(str, (*row, row.sum()))) for row in rows)]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    text = '[data]\nsource = "own.csv"\nlabel = "y"\n[unfold]\nnu = 2.0\nn_components = 1\n'
    (tmp_path / "own.toml").write_text(f'run = "filed"\nreport = "own.html"\n{text}')
    assert here("run", tmp_path / "own.toml", "--plain").status == 0
    assert open_run("filed").config["nu"] == 2.0
    assert "in the colours of y" in (tmp_path / "own.html").read_text()
    placed = '[[transform]]\nsource = "own.csv"\nout = "new.csv"\n'
    (tmp_path / "own.toml").write_text(f"{text}{placed}")
    assert here("run", tmp_path / "own.toml", "--plain").status == 0
    placed = np.loadtxt(tmp_path / "new.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(placed, result_arrays("own-unfolding-q1")["coordinates"][:, 0])


def _sales():
    """Return a table with numbers, levels and a label."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "kind": rng.choice(["red", "blue"], 60)})
    frame["age"], frame["id"] = rng.integers(1, 60, 60), range(60)
    return frame.assign(sold=rng.choice(["yes", "no"], 60))


def _write_sales(here, folder):
    """Unfold a table as the run `sold`, and return the estimator fitted to its encoded rows."""
    _sales().to_parquet(folder / "sales.parquet")
    described = ("--label", "sold", "--keep", "id")
    assert here("ingest", folder / "sales.parquet", *described, "--plain").status == 0
    options = ("--neighbors", "40", "--run", "sold", "--force", "--plain")
    assert here("unfold", "sales", *options).status == 0
    data = open_dataset("sales")
    return ColoredMVU(n_neighbors=40).fit(data.X.read(0, 60), data.y)


def test_new_rows_have_the_places_that_python_gives_them(here, tmp_path):
    model, sales, out = _write_sales(here, tmp_path), _sales(), tmp_path / "new.parquet"
    own = here("transform", "sold", tmp_path / "sales.parquet", "-o", out, "--json").answer
    assert own["ignored"] == ["sold"]
    assert [each["share_outside"] for each in own["drift"]] == [0.0, 0.0]
    written = pd.read_parquet(out)
    assert list(written.columns) == ["id", "coloredmvu0", "coloredmvu1"]
    np.testing.assert_array_equal(written.iloc[:, 1:], model.embedding_)
    new = sales.assign(size=sales["size"] + 0.1, id=0)[["sold", "age", "id", "kind", "size"]]
    new.drop(columns="sold").to_csv(tmp_path / "new.csv", index=False)
    assert here("transform", "sold", tmp_path / "new.csv", "-o", out).status == 0
    names = open_dataset("sales").feature_names
    levels = {f"kind={level}": (new["kind"] == level).astype(float) for level in ("blue", "red")}
    encoded = new.assign(**levels)[list(names)].to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(pd.read_parquet(out).iloc[:, 1:], model.transform(encoded))
    loaded = load_unfolding("sold")
    np.testing.assert_array_equal(loaded.transform(new), model.transform(encoded))
    assert 'load_unfolding("sold")' in render_run("sold")


def test_rows_unlike_the_table_are_refused(here, tmp_path):
    _write_sales(here, tmp_path)
    sales, out = _sales().drop(columns="sold"), ("-o", tmp_path / "out.csv")

    def refused(frame):
        frame.to_csv(tmp_path / "bad.csv", index=False)
        return " ".join(here("transform", "sold", tmp_path / "bad.csv", *out).failed(1).split())

    assert "it lacks 'size'" in refused(sales.drop(columns="size"))
    assert "unknown columns 'weight'" in refused(sales.assign(weight=1.0))
    assert "green" in refused(sales.assign(kind=["green", *sales["kind"][1:]]))
    assert "infinit" in refused(sales.assign(size=[np.inf, *sales["size"][1:]]))
    assert "so far from all rows" in refused(sales.assign(size=[1e308, *sales["size"][1:]]))


def test_rows_of_large_data_sets_are_read_from_them(here, tmp_path, monkeypatch):
    model = _write_sales(here, tmp_path)
    here("remove", "sales")
    copied = load_unfolding("sold").transform(_sales())
    np.testing.assert_array_equal(copied, model.embedding_, "a copy of the rows")
    monkeypatch.setattr("storage.unfoldings._LARGEST_COPY", 0)
    _write_sales(here, tmp_path)
    assert len(result_arrays("sold")["rows"]) == 0
    np.testing.assert_array_equal(load_unfolding("sold").transform(_sales()), model.embedding_)
    described = ("--label", "sold", "--keep", "id", "--name", "sales", "--force", "--plain")
    _sales()[1:].to_parquet(tmp_path / "sales.parquet")
    assert here("ingest", tmp_path / "sales.parquet", *described).status == 0
    command = ("transform", "sold", tmp_path / "sales.parquet", "-o", tmp_path / "out.csv")
    assert "which has changed since" in " ".join(here(*command).failed(1).split())
    here("remove", "sales")
    assert "which is not stored any more" in " ".join(here(*command).failed(1).split())


def test_wrong_settings_are_refused(here, monkeypatch):
    wine, both = ("unfold", "wine", "--plain"), ("--target", "none", "--label", "cultivar")
    assert "leave one of them out" in here(*wine, *both).failed(2)
    assert "`--target` is 'colour'" in here(*wine, "--target", "colour").failed(2)
    message = here(*wine, "--scheduler", "tcp://127.0.0.1:1").failed(2)
    assert "an unfolding is computed on this machine" in message
    assert "1 to 177" in here(*wine, "--neighbors", "178").failed(1)
    assert here(*wine, "--run", "once").status == 0
    assert "--force" in here(*wine, "--run", "once").failed(1)
    monkeypatch.setattr("ism_dask.rows.execution._MEMORY_SHARE", 0.0)
    message = here(*wine, "--run", "large").failed(1)
    assert "rows of shape (178, 13) in an unfolding need" in message


@pytest.mark.usefixtures("prefect_server")
def test_a_flow_shows_its_pictures():
    result, _, artifacts = flown("unfold", UnfoldSettings(dataset="wine", run="flown"))
    page = artifacts["unfold-wine-unfolding"].data
    assert f"| {result.distance_error:.3f} |" in page
    assert page.count("data:image/svg+xml;base64,") == 2
