"""The bar of fits: what it says, and where it says nothing."""

import re
from contextlib import redirect_stderr
from io import StringIO

import nbclient
import nbformat
import numpy as np
import pytest
from models import CULTIVAR, WINE, hsic_model
from rich.console import Console

from ism_dask import PredictiveIKDR, UnsupervisedIKDR
from ism_dask.kernels import Gaussian
from ism_dask.observe import FitWatcher, progress, watching_fits
from ism_dask.observe import progress_bar as bar
from ism_dask.observe.progress_bar import progress_bar
from ism_dask.rows.shards import cut
from ism_dask.selection.rules import RULES
from ism_dask.solvers import ISM

QUICK = hsic_model(2, kernel=Gaussian("median"), solver=ISM(tol=1e-3))


class Terminal(StringIO):
    """An error stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Return the shares, texts and seconds of the bar; a terminal may be too slow to show each."""
    shown, show = [], bar._Bar.show

    def noted(bar, text):
        show(bar, text)
        (task,) = bar._line.tasks
        shown.append((task.completed, task.description, task.elapsed))

    monkeypatch.setattr(bar._Bar, "show", noted)
    return shown


@pytest.mark.parametrize(
    ("model", "last"),
    [
        (hsic_model(2, solver=ISM(tol=1e-9)), r"iteration \d+, objective {}, change .* < 1e-09"),
        (UnsupervisedIKDR(3), r"round \d+, objective {}, movement \S+ < 0.01"),
    ],
)
def test_the_bar_never_goes_back_and_begins_anew_with_each_fit(monkeypatch, shown, model, last):
    monkeypatch.setenv("COLUMNS", "120")
    before = np.inf
    with redirect_stderr(Terminal()) as screen, progress_bar("Wine"):
        for _ in range(2):
            model.fit(WINE, CULTIVAR)
            shares, _, seconds = zip(*shown, strict=True)
            assert (shares[0], shares[-1]) == (0, 1)
            assert list(shares) == sorted(shares)
            assert list(seconds) == sorted(seconds)
            assert seconds[0] < before
            before = seconds[-1]
            shown.clear()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    *_, line = re.split(r"[\r\n]+", plain.strip())
    end = last.format(f"{getattr(model, 'rounds_', model.history_)[-1].objective:.5g}")
    assert re.fullmatch(rf"Wine, fit 2, {end} ━+ 100% 0:\d\d:\d\d", line)


def test_long_passes_are_shown_within_an_iteration_on_any_console(shown, monkeypatch):
    monkeypatch.setattr(progress, "_LONG", -1.0)
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 400)
    rows = np.random.default_rng(0).normal(size=(1200, 4))
    with progress_bar(console=Console(file=StringIO(), force_terminal=True)):
        QUICK.fit(rows, rows[:, 0] > 0)
    for begun in (r"preparing, rows \d+%$", r"iteration 2, rows \d+%, objective \S+$"):
        assert any(re.match(begun, text) for _, text, _ in shown), begun


def test_the_choices_of_a_prediction_are_counted_until_all_rows_have_joined(monkeypatch):
    monkeypatch.setitem(vars(RULES), "exact_rows", 200)
    monkeypatch.setitem(vars(RULES), "stages", (200,))

    class Counting(FitWatcher):
        def on_selection(self, done, total):
            counted.append(done / total)

    counted, X = [], np.random.default_rng(0).normal(size=(500, 3))
    with watching_fits(Counting()):
        PredictiveIKDR(1).fit(X, X[:, 0] ** 2)
    # The mean of y, its law, what the first 200 rows choose, and the rows that join.
    assert counted == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_an_error_comes_through_and_later_fits_are_not_shown(shown):
    refused = pytest.raises(ValueError, match="`solver`")
    with redirect_stderr(Terminal()), refused, progress_bar():
        hsic_model(2, solver="newton").fit(WINE, CULTIVAR)
    QUICK.fit(WINE, CULTIVAR)
    assert shown == []


def test_logs_stay_clean(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar():
        QUICK.fit(WINE, CULTIVAR)
        assert cut(np.ones((6, 2)), 2).fold(lambda piece: piece.X.sum()) == 12
    assert capfd.readouterr() == ("", "")


CELL = """
from sklearn.datasets import load_wine
from ism_dask import SupervisedIKDR, progress_bar
with progress_bar():
    SupervisedIKDR(2).fit(*load_wine(return_X_y=True));
print("done")
"""


@pytest.mark.long
def test_a_notebook_shows_it_in_the_cell_without_widgets():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    shown, printed = notebook.cells[0].outputs
    assert re.search(r"iteration \d+, objective", shown["data"]["text/html"])
    assert printed["text"] == "done\n"
