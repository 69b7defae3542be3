"""What users import and what they install for it, objects as options, scikit-learn's contract."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from daskparts import ran
from models import CULTIVAR, WINE, hsic_model
from numpy.testing import assert_array_equal
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import ism_dask
from ism_dask.engines import EngineOptions
from ism_dask.kernels import Gaussian
from ism_dask.solvers import ISM, Ascent

# Some tests compare fits that end before they converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize(
    ("name", "by_name", "by_object"),
    [
        ("solver", "ism", ISM()),
        *(("engine", name, EngineOptions(name)) for name in ("auto", "landmarks", "exact")),
    ],
)
def test_options_by_name_and_by_object_give_the_same_bits(name, by_name, by_object):
    given = ({name: by_name}, {name: by_object})
    one, other = (
        hsic_model(2, kernel=Gaussian(3.0), random_state=3, **each).fit(WINE, CULTIVAR)
        for each in given
    )
    assert_array_equal(one.components_, other.components_)
    assert one.report_ == other.report_
    one, other = (ism_dask.UnsupervisedIKDR(3, 2, **each).fit(WINE) for each in given)
    assert_array_equal(one.labels_, other.labels_)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ISM, {"tol": 0.0}, r"`tol` must be a number in \(0, inf\)"),
        (ISM, {"tol": "small"}, r"`tol` must be a number in \(0, inf\); got 'small'"),
        (ISM, {"angle_tol": -1.0}, r"`angle_tol` must be a number in \(0, inf\)"),
        (ISM, {"angle_tol": 0.1}, "`angle_tol` goes with `tol`, which is None"),
        (Ascent, {"max_iter": 0}, "`max_iter` must be a whole number from 1 up"),
        (ISM, {"max_seconds": 0.0}, "`max_seconds` must be a positive finite number or None"),
        (EngineOptions, {"tol": 1.0}, r"`tol` of an engine must be a number in \(0, 1\)"),
    ],
)
def test_options_out_of_range_are_refused_at_once(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_all_that_is_exported_is_there_and_a_missing_name_is_the_usual_error():
    assert set(ism_dask.__all__) <= set(dir(ism_dask))
    assert all(getattr(ism_dask, name) is not None for name in ism_dask.__all__)
    assert ism_dask.kernels.KERNELS["gaussian"] is ism_dask.kernels.Gaussian
    with pytest.raises(AttributeError, match="module 'ism_dask' has no attribute 'Superwised'"):
        _ = ism_dask.Superwised


@pytest.mark.parametrize(
    ("room", "heavy"),
    [
        ("ism_dask.rows.raw", {"dask", "sklearn", "scipy"}),
        ("storage", {"prefect", "dask", "distributed", "typer", "flows"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(room, heavy):
    ended = ran(sys.executable, "-c", f"import sys, {room}; print(*sys.modules)")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not heavy & set(ended.stdout.split())


# An installation without extras: all of Python's side, and one line from the command.

MODULES = {"pillow": "PIL"}
# Python takes a package with such an entry for one that is not installed.
HIDING = "import sys; sys.modules.update(dict.fromkeys({names!r}))"
PYTHON_ALONE = """
import ism_dask
for name in set(ism_dask.__all__) - {"progress_bar", "plot"}:
    getattr(ism_dask, name)
try:
    ism_dask.progress_bar
except ImportError as error:
    assert "pip install 'ism-dask[flows]'" in str(error), error
import dask.array
from sklearn.datasets import load_wine
X, y = (each[::4] for each in load_wine(return_X_y=True))
for model in (ism_dask.PredictiveIKDR(2, max_features=None), ism_dask.SupervisedIKDR(2)):
    assert model.fit(X, y).transform(X).shape == (45, 2)
assert ism_dask.SupervisedIKDR(2).fit(dask.array.from_array(X, chunks=25), y).converged_
print(ism_dask.dependence_test(X, y).pvalue < 0.01)
"""


def _without_extras(program):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"]["flows"]
    names = [re.match(r"[\w-]+", each)[0].lower() for each in needed]
    # Dask itself brings fsspec, and scikit-learn takes any entry for a loaded pyarrow.
    names = {MODULES.get(name, name) for name in names} - {"fsspec", "pyarrow"}
    assert {"prefect", "distributed", "psutil", "matplotlib"} <= names
    return ran(sys.executable, "-c", f"{HIDING.format(names=names)}\n{program}")


def test_python_needs_no_extra():
    ended = _without_extras(PYTHON_ALONE)
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_the_command_says_in_one_line_what_to_install():
    ended = _without_extras("from ism_dask_command import main; main()")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "pip install 'ism-dask[flows]'" in ended.stderr


# The contract of scikit-learn.


def _exempt(estimator):
    if get_tags(estimator).array_api_support:
        return {}
    return {"check_array_api_input": "needs SCIPY_ARRAY_API in the environment"}


CHECKS = parametrize_with_checks(
    [
        ism_dask.PredictiveIKDR(
            1, kernel=Gaussian(2.0), max_features=None, solver=Ascent(max_iter=5)
        ),
        ism_dask.SupervisedIKDR(solver=ISM(max_iter=5)),
        ism_dask.SupervisedIKDR(missing="mean"),
        ism_dask.UnsupervisedIKDR(max_outer=3),
        ism_dask.SemiSupervisedIKDR(3, max_outer=3),
        ism_dask.AlternativeIKDR(max_outer=3),
        ism_dask.ColoredMVU(n_eigenvectors=5),
    ],
    expected_failed_checks=_exempt,
)


# Rows and labels drawn at random, as some checks have them, may have nothing to settle at. The
# list is for pytest 9, which warns about the generator of scikit-learn before 1.9.
@pytest.mark.filterwarnings("ignore:the graph of the:UserWarning")
@pytest.mark.parametrize(CHECKS.args[0], list(CHECKS.args[1]), **CHECKS.kwargs)
def test_the_contract_of_scikit_learn(estimator, check, monkeypatch):
    if get_tags(estimator).array_api_support:
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else it skips its checks of other arrays
    check(estimator)
