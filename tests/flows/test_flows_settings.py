"""Settings, declared once and checked before anything runs, and run files, which hold them."""

import re
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from flows.errors import SettingsError
from flows.runs.clustering import PARADIGMS
from flows.settings.base import import_choices
from flows.settings.fields import command_words, deciding
from flows.settings.run_file import FLOWS, read_run_file
from flows.settings.run_file_text import commented_run_file
from flows.settings.runs import CrossvalSettings, FitSettings, SavedRunSettings
from flows.settings.unsupervised import LABEL_SETTINGS
from ism_dask.engines import ENGINES
from ism_dask.kernels import KERNELS, DistanceKernel, Gaussian, Polynomial
from storage import dataset_path, load_model, open_dataset

N = 150
RUN_FILE = """\
run = "churn"
report = "churn.html"

[data]
source = "sales.csv"
name = "shop"
label = "left us"
keep = ["id"]

[fit]
n_components = 2
kernel = "polynomial"
degree = 2

[[transform]]
source = "sales.csv"
out = "new.parquet"

[[transform]]
source = "shop"
out = "same.npy"
"""


@pytest.fixture
def run_file(tmp_path, monkeypatch):
    """Write a table and a run file, in a folder that is not the current one."""
    rows = np.random.default_rng(3).normal(size=(N, 3))
    frame = pd.DataFrame(rows, columns=["age", "income", "visits"])
    frame["left us"] = np.where(frame["age"] * frame["income"] > 0, "yes", "no")
    frame.insert(0, "id", range(N))
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
    frame.to_csv(folder / "sales.csv", index=False)
    (folder / "run.toml").write_text(RUN_FILE)
    monkeypatch.chdir(elsewhere)
    return folder / "run.toml"


@pytest.mark.long
def test_a_run_file_runs_from_the_table_to_the_outputs(here, run_file):
    folder = run_file.parent
    shown = here("run", run_file, "--dry-run").out
    assert "150 rows; 3 columns become 3 numbers" in shown
    assert "n_components=2" in shown
    assert "nothing was stored" in shown
    assert here("show", "churn").status == 2
    result = here("run", run_file, "--plain", "--json").answer
    written = [folder / name for name in ("new.parquet", "same.npy", "churn.html")]
    assert result["written"] == [*map(str, written)]
    assert open_dataset("shop").class_names == {"left_us": ("no", "yes")}
    assert result["fitted_kernel"] == {"name": "polynomial", "degree": 2, "offset": 1.0}
    new = pd.read_parquet(folder / "new.parquet")
    model = load_model("churn")
    expected = model.transform(pd.read_csv(folder / "sales.csv"))
    np.testing.assert_array_equal(new[["predictiveikdr0", "predictiveikdr1"]], expected)
    np.testing.assert_allclose(np.load(folder / "same.npy"), expected, rtol=1e-6, atol=1e-6)
    assert list(new["id"].astype(int)) == list(range(N))
    again = here("run", run_file, "--plain", "--quiet").failed(1)
    assert "there is a run 'churn' already" in again
    assert "choose another name with `run`" in again
    assert here("run", run_file, "--plain", "--force").status == 0


def test_names_of_data_sets_are_listed_without_opening_one(monkeypatch):
    dataset_path("own").mkdir(parents=True)
    monkeypatch.setattr("storage.dataset.open_dataset", None)
    assert {"own", "wine"} < {*import_choices().dataset_names()}


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ("n_components = 2", "n_componets = 2", "did you mean 'n_components'"),
        ("n_components = 2", 'n_components = "2"', "is '2'; expected a whole number"),
        ("n_components = 2", 'label = "age"', "give `label` in [data]"),
        ("degree = 2", "sigma = 2.0", "parameter of the polynomial kernel, which takes degree and"),
        ('"polynomial"', '"gauss"', "`fit.kernel` is 'gauss'; did you mean 'gaussian'"),
        ('keep = ["id"]', 'keep = [\n  # of customers\n  "id",\n  3,\n]', "[1]` is 3"),
        ('keep = ["id"]', 'missing = "men"', "expected one of refuse, drop"),
        ('run = "churn"', 'run = "a/b"', "`run` is 'a/b'"),
        ('out = "same.npy"', 'out = "~nobody-here/x.npy"', "there is no such user here"),
        ('report = "churn.html"', r'report = "\u0000"', "has a null character"),
        ('report = "churn.html"', 'report = "c.pdf"', "name that ends in .html or .md or .json"),
        ('source = "sales.csv"', r'source = "\u0000"', "has a null character"),
        ('out = "same.npy"', 'out = "x.npy"\nunseen = "all"', "`transform[1].unseen` is 'all'"),
        ('out = "same.npy"', "", "`transform[1].out` is missing"),
        ('out = "same.npy"', 'out = "same.xls"', "`transform[1].out` is "),
        ('out = "same.npy"', 'out = "./new.parquet"', "which the run reads, or writes twice"),
        ("[fit]", "[fits]", "the file has no table of a flow; expected one table [fit] or ["),
        ("[fit]", "[crossval]\n[fit]", "[fit] and [crossval]; expected one table"),
        ("[fit]", "[crossval]", "crossval saves no W"),
        ("[fit]", "[fit", "is no TOML"),
        ("]\n\n[fit]", ']\nweights = "age"\n[cluster]', "`data.weights` is 'age', but clusters"),
        ('source = "sales.csv"\nname = "shop"', 'source = "wine"\nname = "x"', "is no table"),
        ('source = "sales.csv"\nname', 'source = "wines"\nname', "wines"),
    ],
)
def test_what_is_wrong_in_a_run_file_is_named(run_file, line, instead, message):
    text = run_file.read_text()
    assert line in text
    run_file.write_text(text.replace(line, instead, 1))
    with pytest.raises(SettingsError, match=re.escape(message)) as caught:
        read_run_file(run_file)
    assert str(run_file) in str(caught.value)


def test_labels_of_a_run_file_may_be_a_list(run_file):
    text = RUN_FILE.replace('"left us"', '["age", "income", "age"]').replace('["id"]', "[]")
    run_file.write_text(f"\ufeff{text}")  # some editors mark UTF-8 so
    plan = read_run_file(run_file)
    assert plan.settings.label == plan.ingest.label == "age,income,age"
    assert import_choices().table_options(plan.ingest).label == ("age", "income")


def test_init_writes_a_path_from_the_folder_of_the_file(here, run_file, monkeypatch):
    monkeypatch.chdir(run_file.parent)
    Path("jobs").mkdir()
    Path("sales.csv").rename("sälés 😀\x7f.csv")
    monkeypatch.setenv("HOME", str(run_file.parent))
    for data in ("sälés 😀\x7f.csv", "~/sälés 😀\x7f.csv", "wine"):
        label = "cultivar" if data == "wine" else "left us"
        init = ("init", "jobs/own.toml", "--data", data, "--label", label, "--force")
        assert here(*init).status == 0
        assert here("run", "jobs/own.toml", "--dry-run").status == 0


@pytest.mark.parametrize("flow", list(FLOWS))
def test_the_file_that_init_writes_has_every_default(here, run_file, flow):
    file, table = run_file.with_name("own.toml"), run_file.with_name("sales.csv")
    command = ("init", file, "--data", table, "--label", "left us", "--flow", flow)
    assert here(*command).status == 0
    plain = read_run_file(file).settings
    assert len(file.read_text().splitlines()) < 60
    assert 'run = "sales"' in commented_run_file(flow, "sales/part-*.csv")
    assert "# label" in (text := commented_run_file(flow, "wine"))  # its label is not called so
    assert ("[[transform]]" in text) is (flow != "crossval")  # which has no W to project with
    assert here(*command, "--full", "--force").status == 0
    assert read_run_file(file).settings == plain
    # Defaults without their comment sign: the file means the same.
    text = re.sub(r"^# (\w+ = (?!.*# for example$).*)$", r"\1", file.read_text(), flags=re.M)
    text = text.split("# [[transform]]")[0].replace("# [refresh]", "[refresh]")
    file.write_text(text)
    assert read_run_file(file).settings == plain


def test_every_kernel_has_its_name_and_its_parameters():
    wine = SavedRunSettings(dataset="wine")
    for name, kind in KERNELS.items():
        assert isinstance(replace(wine, kernel=name).build_kernel(), kind)
    for given, sigma in ((2.5, 2.5), ("2.5", 2.5), ("median", "median"), ("root", "root")):
        assert replace(wine, sigma=given).build_kernel() == Gaussian(sigma)
    assert replace(wine, sigma="5") == replace(wine, sigma=5.0)  # a start compares them
    assert wine.build_kernel() == Gaussian("root")
    assert replace(wine, kernel="distance", offset=0.5).build_kernel() == DistanceKernel(0.5)
    polynomial = replace(wine, kernel="polynomial", degree=2, offset=0.5)
    assert polynomial.build_kernel() == Polynomial(degree=2, offset=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tol": 0.1}, "`tol` is 0.1, but --tol belongs to --criterion dependence; give that, or"),
        ({"engine_tol": 0.1}, "--engine-tol belongs to --criterion dependence"),
        ({"engine": "exact"}, "`engine` is 'exact', which belongs to --criterion dependence"),
        ({"kernel": "distance"}, "`kernel` is 'distance', which is not positive definite"),
    ],
)
def test_what_belongs_to_dependence_is_refused_for_prediction(changes, message):
    with pytest.raises(SettingsError, match=message):
        FitSettings(dataset="wine", **changes)
    assert FitSettings(dataset="wine", criterion="dependence", **changes).criterion == "dependence"


def test_a_cross_validation_by_both_criteria_takes_what_both_have():
    both = CrossvalSettings(dataset="wine", criterion="both")
    assert both.criteria == ("dependence", "prediction")
    for name, value in (("tol", 0.01), ("engine", "exact"), ("max_features", 3)):
        with pytest.raises(SettingsError, match=f"`{name}`"):
            replace(both, **{name: value})
    with pytest.raises(SettingsError, match="`max_features` is 3, but --max-features belongs to"):
        FitSettings(dataset="wine", criterion="dependence", max_features=3)
    with pytest.raises(SettingsError, match="`criterion` is 'both'; expected one of prediction, d"):
        FitSettings(dataset="wine", criterion="both")


def test_name_place_and_pace_of_a_run_decide_no_number():
    wine = CrossvalSettings(dataset="wine", n_components=2)
    other = replace(wine, run="x", force=True, afresh=True, checkpoint=9.0, stall=9.0)
    other = replace(other, first=2, scheduler="tcp://127.0.0.1:8786")
    assert deciding(other) == deciding(wine)
    assert deciding(replace(wine, folds=5)) != deciding(wine)
    assert command_words(CrossvalSettings, replace(wine, first=2, run="x").to_json()) == [
        "wine", "--components", "2", "--first", "2",
    ]  # fmt: skip


def test_the_form_of_the_prefect_ui_explains_every_setting():
    adapter = TypeAdapter(CrossvalSettings)
    schema = adapter.json_schema()["properties"]
    assert list(schema) == sorted(schema, key=lambda name: schema[name]["position"])
    assert schema.keys() == {field.name for field in fields(CrossvalSettings)}
    assert all(each["title"] and each["description"] for each in schema.values())
    assert schema["kernel"]["enum"] == sorted(KERNELS)
    assert schema["engine"]["enum"] == ["auto", *ENGINES]
    assert schema["tol"]["exclusiveMinimum"] == 0
    assert "wine" in schema["dataset"]["enum"]
    assert schema["n_components"].items() >= {"type": "integer", "minimum": 1}.items()
    # No choice of a type; and the server refuses an empty field that has names.
    assert all("anyOf" not in each for each in schema.values())
    optional = [each.name for each in fields(CrossvalSettings) if each.default is None]
    assert not [name for name in optional if "enum" in schema[name] or "default" in schema[name]]
    given = CrossvalSettings(dataset="wine", n_components=2, first=1)
    assert adapter.validate_python(given.to_json()) == given


def test_a_paradigm_takes_the_settings_that_its_estimator_has():
    assert set(LABEL_SETTINGS) == set(PARADIGMS)
    for name, paradigm in PARADIGMS.items():
        assert ("mu" in LABEL_SETTINGS[name]) == ("mu" in signature(paradigm.estimator).parameters)
