"""The bar of fits: what it says, and where it says nothing."""

import os
import pty
import re
import subprocess
import sys
from io import StringIO

import numpy as np
import pytest
from models import CULTIVAR, WINE, hsic_model
from numpy.testing import assert_array_equal
from rich.console import Console

from ism_dask import UnsupervisedIKDR
from ism_dask.kernels import Gaussian
from ism_dask.observe import progress
from ism_dask.observe import progress_bar as bar
from ism_dask.observe.progress_bar import progress_bar
from ism_dask.rows.shards import cut
from ism_dask.solvers import ISM

X, Y = WINE, CULTIVAR
MEDIAN = Gaussian("median")


@pytest.fixture
def terminal():
    return Console(file=StringIO(), force_terminal=True, width=120)


def last_line(terminal):
    """Return the last line that a terminal was shown, without what rules the cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.file.getvalue())
    return re.split(r"[\r\n]+", plain.strip())[-1]


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


def test_the_bar_never_goes_back_and_begins_anew_with_each_fit(terminal, shown):
    with progress_bar("Wine", console=terminal):
        for _ in range(2):
            fitted = hsic_model(2, solver=ISM(tol=1e-9)).fit(X, Y)
            shares, _, seconds = zip(*shown, strict=True)
            assert (shares[0], shares[-1]) == (0, 1)
            assert list(shares) == sorted(shares)
            assert list(seconds) == sorted(seconds)
            assert seconds[0] < 1
            shown.clear()
    last = fitted.history_[-1]
    text = f"Wine, fit 2, iteration {last.iteration}, objective {last.objective:.5g}, change "
    assert re.match(re.escape(text) + r".* < 1e-09 ━+ 100% 0:\d\d:\d\d$", last_line(terminal))


def test_clusterers_are_shown_by_round(terminal, shown, monkeypatch):
    # On a busy machine passes are long and shown between the iterations, as is the time left.
    monkeypatch.setattr(progress, "_LONG", np.inf)
    monkeypatch.setattr(progress, "_SECONDS", np.inf)
    alone = UnsupervisedIKDR(3).fit(X)
    with progress_bar(console=terminal):
        fitted = UnsupervisedIKDR(3).fit(X)
    assert_array_equal(fitted.components_, alone.components_)
    texts = [text for _, text, _ in shown[:-1]]
    rounds = [text for text in texts if re.match(r"round \d+, objective", text)]
    known = [f"objective {r.objective:.5g}, movement {r.movement:.2g}" for r in fitted.rounds_]
    assert [re.sub(r"round \d+, (.*) [<>] 0.01", r"\1", text) for text in rounds] == known
    assert re.match(r"round 1, iteration 1, objective", texts[1])
    assert re.match(rf"{re.escape(rounds[-1])} ━+ 100%", last_line(terminal))


def test_long_passes_are_shown_within_an_iteration(terminal, shown, monkeypatch):
    monkeypatch.setattr(progress, "_LONG", -1.0)
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 400)
    rows = np.random.default_rng(0).normal(size=(1200, 4))
    with progress_bar(console=terminal):
        hsic_model(2, kernel=MEDIAN, engine="exact", solver=ISM(tol=1e-3)).fit(rows, rows[:, 0] > 0)
    for begun in (r"preparing, rows \d+%$", r"iteration 2, rows \d+%, objective \S+$"):
        assert any(re.match(begun, text) for _, text, _ in shown), begun


def test_an_error_comes_through_and_later_fits_are_not_shown(terminal, shown):
    with pytest.raises(ValueError, match="`solver`"), progress_bar(console=terminal):
        hsic_model(2, solver="newton").fit(X, Y)
    hsic_model(2, kernel=MEDIAN).fit(X, Y)
    assert shown == []


def test_logs_stay_clean(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar():
        hsic_model(2, kernel=MEDIAN).fit(X, Y)
        assert cut(np.ones((6, 2)), 2).fold(lambda piece: piece.X.sum()) == 12
    assert capfd.readouterr() == ("", "")


SCRIPT = """
from sklearn.datasets import load_wine
from ism_dask import SupervisedIKDR
from ism_dask import progress_bar
from ism_dask.kernels import Gaussian
with progress_bar():
    model = SupervisedIKDR(2, kernel=Gaussian("median"))
    model.fit(*load_wine(return_X_y=True))
print("done")
"""


def test_a_terminal_is_shown_a_bar_on_the_error_stream():
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(theirs)
        shown = b"".join(_read(screen))
        assert process.communicate()[0] == b"done\n"
    assert "iteration 3, objective 1758.9" in shown.decode()


def _read(screen):
    """Yield what comes until the other side is closed, which Linux tells by an error."""
    while True:
        try:
            block = screen.read(4096)
        except OSError:
            return
        if not block:
            return
        yield block


@pytest.mark.long
def test_a_notebook_shows_it_in_the_cell_without_widgets():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SCRIPT)])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    shown, printed = notebook.cells[0].outputs
    assert "iteration 3, objective 1758.9" in shown["data"]["text/html"]
    assert printed["text"] == "done\n"
