"""How far a fit says that it is, within its iterations too."""

import math
import re
from io import StringIO
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from support import Diary, store_own
from waiting import wait

import flows.progress.watching
from flows.progress.watching import (
    ProgressShare,
    progress_note,
    report_progress,
    watch_progress,
    watched_fit,
)
from flows.runs.crossval import run_crossval
from flows.settings.runs import CrossvalSettings
from ism_dask.observe import progress
from ism_dask.observe.progress import TimeLeft, log_progress
from ism_dask.observe.progress_bar import bar_columns
from ism_dask.rows.shards import cut
from ism_dask.solvers import ISM


@pytest.fixture
def _every_pass(monkeypatch):
    """Report passes that are over in no time."""
    monkeypatch.setattr(progress, "_LONG", -1.0)
    monkeypatch.setattr(flows.progress.watching, "_EVERY", 1e-4)


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves on, by its attribute `now`."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_the_time_left_is_shown_from_two_seconds_on(clock):
    left, texts = TimeLeft(), []
    for number in range(1, 81):
        clock.now = number / 2
        left.tick(number / 80)
        texts.append(left.after("text"))
    assert texts[:3] == ["text"] * 3
    assert texts[3] == "text, about 40 s left"
    assert texts[39] == "text, about 20 s left"
    assert texts[-2:] == ["text, about 1 s left", "text"]


@pytest.mark.parametrize("fall", [0.5, 0.8, 0.9])
def test_the_time_left_of_a_residual_that_falls_geometrically(fall, clock):
    left, ratios, shares = TimeLeft(), [], []
    steps = math.ceil(math.log(1e-4) / math.log(fall))
    residuals = fall ** np.arange(1, steps)
    for number in range(1, steps):
        clock.now += 10.0
        shares.append(log_progress(residuals[:number], 1e-4, 1000))
        left.tick(shares[-1])
        if left.seconds is not None:
            ratios.append(left.seconds / (10.0 * (steps - number)))
    assert shares == sorted(shares)
    assert len(ratios) > 0.8 * steps
    assert np.mean(np.abs(np.log(ratios)) < math.log(2.0)) > 0.8


@pytest.mark.usefixtures("_every_pass")
def test_a_fold_tells_of_its_passes_and_of_its_classifier(monkeypatch):
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 400)
    store_own(1600)
    diary = Diary()
    exact = {"criterion": "dependence", "engine": "exact", "tol": 1e-12, "max_iter": 12}
    settings = CrossvalSettings(dataset="own", sigma="median", folds=2, **exact)
    outer = Diary()
    with watch_progress(outer), watch_progress(diary):
        run_crossval(settings)
        progress_note("somewhere")
    report_progress(0.5, "nobody hears this")
    assert outer.shares == diary.shares
    assert outer.notes[-1] == "somewhere"
    assert any("fold 2 of 2, iteration 1, objective" in text for text in diary.texts)
    for fold in ("fold 1 of 2", "fold 2 of 2"):
        own = [text for text, _ in groupby(diary.texts) if text.startswith(fold)]
        assert any(re.search(r"iteration \d+, (pass \d+, )?rows \d+%", text) for text in own)
        steps = ("training the classifier", "judging the held-out rows")
        assert own[-3:-1] == [f"{fold}, {step}" for step in steps]
        assert any(line.startswith(f"{fold}, accuracy ") for line in diary.log)
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0


@pytest.mark.usefixtures("_every_pass")
def test_a_watcher_that_fails_does_not_stop_the_fit_from_aside():
    class Gone(Diary):
        def tick(self, share, text):
            super().tick(share, text)
            raise OSError("nobody there")

    gone = Gone()
    with watch_progress(gone), watched_fit(ProgressShare(), ISM(max_iter=100)):
        assert cut(np.ones((6, 2)), 2).fold(lambda piece: piece.X.sum()) == 12
        wait(lambda: gone.texts, every=1e-3)
    # Told once, at whichever task it was, and never again.
    assert len(gone.texts) == 1
    assert re.match(r"preparing, rows \d+%", gone.texts[0])


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_text_leaves_room_for_the_bar(width):
    console = Console(file=StringIO(), width=width)
    progress = Progress(*bar_columns(width), console=console)
    text = "fold 10 of 10, iteration 12, rows 50%, objective 0.123456, 12 min left"
    progress.add_task(text, total=1.0, completed=0.4)
    console.print(progress.get_renderable())
    shown = console.file.getvalue()
    assert re.match(r"fold 10 of 10, .*… [━╸╺ ]{5,} 40% 0:00:00\n$", shown), shown
    assert len(shown) <= width + 1
