"""Settings: declared once, checked before anything runs."""

from dataclasses import fields, replace
from inspect import signature

import pytest
from pydantic import TypeAdapter

from flows.errors import SettingsError
from flows.runs.clustering import PARADIGMS
from flows.settings.fields import command_words, deciding
from flows.settings.runs import LABEL_SETTINGS, CrossvalSettings, FitSettings, SavedRunSettings
from ism_dask.engines import ENGINES
from ism_dask.kernels import KERNELS, DistanceKernel, Gaussian, Polynomial
from storage import open_run


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_can_be_had_by_name(name):
    assert isinstance(SavedRunSettings(dataset="wine", kernel=name).build_kernel(), KERNELS[name])


def test_kernel_parameters_reach_the_kernel():
    wine = SavedRunSettings(dataset="wine")
    for given, sigma in ((2.5, 2.5), ("2.5", 2.5), ("median", "median"), ("root", "root")):
        assert replace(wine, sigma=given).build_kernel() == Gaussian(sigma)
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
    places = [list(schema).index(each) for each in ("dataset", "target", "kernel", "run")]
    assert places == sorted(places)
    given = CrossvalSettings(dataset="wine", n_components=2, first=1)
    assert adapter.validate_python(given.to_json()) == given


def test_a_paradigm_takes_the_settings_that_its_estimator_has():
    assert set(LABEL_SETTINGS) == set(PARADIGMS)
    for name, paradigm in PARADIGMS.items():
        assert ("mu" in LABEL_SETTINGS[name]) == ("mu" in signature(paradigm.estimator).parameters)


def test_the_target_of_a_fit_can_be_chosen(here, fitted_wine):
    numbers = here("fit", "wine", "--plain", "--json", "-q", 2, "--target", "gaussian")
    assert numbers.answer["selection"]["target"] == "law"
    assert open_run(fitted_wine).metrics["selection"]["target"] == "mean"
