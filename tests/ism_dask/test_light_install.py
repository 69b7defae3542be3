"""What an installation without extras does: all of Python's side, and one line from the command."""

import re
import sys
import tomllib
from pathlib import Path

from daskparts import ran

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
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
    project = tomllib.loads(PROJECT.read_text())["project"]
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
