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
from flows.progress.fits import FitReports, watched_fit
from flows.progress.watching import ProgressShare, progress_note, report_progress, watch_progress
from flows.runs.crossval import run_crossval
from flows.settings.runs import CrossvalSettings
from ism_dask.observe import progress
from ism_dask.observe.progress import FitProgress, TimeLeft, duration, log_progress
from ism_dask.observe.progress_bar import bar_columns
from ism_dask.records.iteration import Round, StoppingOfRounds
from ism_dask.rows.shards import cut
from ism_dask.solvers import ISM

STEPS = ISM(tol=0.01, max_iter=100)
ROUNDS = StoppingOfRounds(tol=0.01, max_iter=20)


@pytest.fixture
def _every_pass(monkeypatch):
    """Report passes that are over in no time."""
    monkeypatch.setattr(progress, "_LONG", -1.0)
    monkeypatch.setattr(flows.progress.watching, "_EVERY", 1e-4)


class Texts(FitProgress):
    """Progress of a fit whose texts a test reads."""

    def __init__(self, *limits):
        self.texts = []
        self.begun(*limits)

    def show(self, text):
        self.texts.append(text)


def state(*changes, limit=0.0, tol=0.01):
    current = SimpleNamespace(objective=2.0)
    history = []
    for number, change in enumerate(changes, start=1):
        size = {"change": change, "residual": change, "settled": change < tol, "limit": limit}
        history.append(SimpleNamespace(iteration=number, objective=2.0, seconds=0.0, **size))
    return SimpleNamespace(history=history, iteration=len(changes), current=current)


@pytest.mark.parametrize(
    ("values", "most", "share"),
    [
        ((1.0,), 100, 0.01),
        ((1.0, 0.1), 100, 0.5),
        ((1.0, 0.1, 0.3), 100, 0.5),
        ((1.0, 0.9, 0.9), 6, 0.5),
        ((1.0, 0.9, 0.9), 2, 0.9),
        ((1.0, 0.001), 100, 1.0),
        ((0.001,), 100, 1.0),
    ],
)
def test_the_share_of_a_fit_follows_the_change(values, most, share):
    assert log_progress(values, 0.01, most) == pytest.approx(share)


def test_the_limit_of_a_fit_may_be_the_noise_between_rows():
    def share(limit):
        fit = Texts(ISM())
        fit.on_iteration(state(1.0, 0.1, limit=limit, tol=limit))
        return fit.share

    assert share(0.0) == pytest.approx(0.9 / 4)
    assert share(0.01) == pytest.approx(0.9 / 2)


def test_a_part_tells_of_the_whole():
    diary = Diary()
    with watch_progress(diary):
        fold = ProgressShare(0.2, 0.6, "fold 2 of 10")
        fold.report(0.5, "iteration 3")
        fold.until(0.5).report(1.0)
        ProgressShare().report(0.75, "alone")
    assert diary.shares == pytest.approx([0.4, 0.4, 0.75])
    assert diary.texts == ["fold 2 of 10, iteration 3", "fold 2 of 10", "alone"]


class Clock:
    """A clock that a test moves on."""

    now = 0.0

    def __call__(self):
        return self.now


def texts_after(ticks):
    """Return the text after each tick, a time and a share."""
    clock = Clock()
    left, texts = TimeLeft(clock), []
    for clock.now, share in ticks:
        left.tick(share)
        texts.append(left.after("text"))
    return texts


def test_the_time_left_is_shown_from_two_seconds_on():
    texts = texts_after((number / 2, number / 80) for number in range(1, 81))
    assert texts[:3] == ["text"] * 3
    assert texts[3] == "text, about 40 s left"
    assert texts[39] == "text, about 20 s left"
    assert texts[-2:] == ["text, about 1 s left", "text"]


def test_the_time_left_counts_down_between_reports():
    clock = Clock()
    left = TimeLeft(clock)
    for clock.now in (10.0, 20.0, 30.0, 40.0):
        left.tick(clock.now / 100)
    assert left.seconds == pytest.approx(60.0)
    clock.now = 70.0
    assert left.seconds == pytest.approx(30.0)
    clock.now = 101.0
    assert left.seconds is None  # the estimate was too low


def test_there_is_no_estimate_of_a_share_that_has_hardly_begun():
    assert texts_after([(10.0, 0.0), (20.0, 0.01), (30.0, 0.03)])[:2] == ["text", "text"]


@pytest.mark.parametrize("fall", [0.5, 0.8, 0.9])
def test_the_time_left_of_a_residual_that_falls_geometrically(fall, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock))
    steps = math.ceil(math.log(1e-4) / math.log(fall))
    residuals = fall ** np.arange(1, steps)
    fit, left = Texts(ISM(max_iter=1000)), TimeLeft(clock)
    ratios, shares = [], []
    for number in range(1, steps):
        clock.now += 10.0
        fit.on_iteration(state(*residuals[:number], tol=1e-4))
        left.tick(fit.share)
        shares.append(fit.share)
        # The iterations are nine tenths of the fit.
        if left.seconds is not None:
            ratios.append(left.seconds / (10.0 * (steps / 0.9 - number)))
    assert shares == sorted(shares)
    assert len(ratios) > 0.8 * steps
    assert np.mean(np.abs(np.log(ratios)) < math.log(2.0)) > 0.8


def test_durations_are_put_into_words():
    words = ["1 s", "99 s", "2 min", "83 min", "2 h"]
    assert [duration(seconds) for seconds in (1.0, 99.0, 100.0, 5000.0, 7300.0)] == words


@pytest.mark.usefixtures("_every_pass")
def test_passes_are_told_of_within_every_iteration_and_the_check():
    diary = Diary()
    reports = FitReports(ProgressShare(), STEPS)

    def pass_of(tasks):
        for done in range(1, tasks + 1):
            reports.on_task(done, tasks)
            reports.report_pass()

    with watch_progress(diary):
        reports.report_pass()  # nothing is under way
        pass_of(2)
        pass_of(2)
        reports.on_iteration(state(1.0))
        pass_of(2)
        reports.on_iteration(state(1.0, 0.001))
        pass_of(1)
    assert diary.texts == [
        "preparing, rows 50%",
        "preparing, rows 100%",
        "preparing, rows 50%",
        "preparing, rows 100%",
        "iteration 1, objective 2, change 1 > 0.01",
        "iteration 2, rows 50%, objective 2",
        "iteration 2, rows 100%, objective 2",
        "iteration 2, objective 2, change 0.001 < 0.01",
        "checking, rows 100%, objective 2",
    ]
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] < 1


def test_short_passes_are_not_reported():
    diary = Diary()
    reports = FitReports(ProgressShare(), STEPS)
    with watch_progress(diary):
        for done in (1, 2, 3):
            reports.on_task(done, 3)
            reports.report_pass()
    assert diary.texts == []


@pytest.mark.usefixtures("_every_pass")
def test_a_fold_tells_of_its_passes_and_of_its_classifier():
    store_own(6000)
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
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0


@pytest.mark.usefixtures("_every_pass")
def test_a_watcher_that_fails_does_not_stop_the_fit_from_aside():
    class Gone(Diary):
        def tick(self, share, text):
            super().tick(share, text)
            raise OSError("nobody there")

    gone = Gone()
    with watch_progress(gone), watched_fit(ProgressShare(), STEPS):
        assert cut(np.ones((6, 2)), 2).fold(lambda piece: piece.X.sum()) == 12
        wait(lambda: gone.texts, every=1e-3)
    # Told once, at whichever task it was, and never again.
    assert len(gone.texts) == 1
    assert re.match(r"preparing, rows \d+%", gone.texts[0])


@pytest.mark.parametrize(("iterations", "lines"), [(7, 7), (60, 30), (1500, 45)])
def test_the_log_of_a_long_fit_is_short(iterations, lines):
    diary, slow = Diary(), ISM(tol=1e-9, max_iter=6000)
    changes = np.geomspace(1.0, 1e-6, iterations).tolist()
    with watch_progress(diary), watched_fit(ProgressShare(), slow) as reports:
        done = state(*changes)
        whole = done.history
        for done.iteration in range(1, iterations + 1):
            done.history = whole[: done.iteration]
            reports.on_iteration(done)
    assert diary.log[0] == "phase: iterations"
    steps = [line for line in diary.log if not line.startswith("phase: ")]
    logged = [int(re.findall(r"^iteration (\d+): J 2, change ", line)[0]) for line in steps]
    assert logged == sorted(set(logged))
    assert logged[:6] == [1, 2, 3, 4, 5, 6]
    assert logged[-1] == iterations
    assert len(logged) <= lines
    gaps = np.diff(logged[:-1]).tolist()
    assert gaps == sorted(gaps)


def test_a_fold_has_its_share_of_the_log():
    diary = Diary()
    for part in ProgressShare().named("fold 1 of 10").cut([1.0] * 10):
        with watch_progress(diary), watched_fit(part, STEPS) as reports:
            for number in range(1, 90):
                reports.on_iteration(state(*np.geomspace(1.0, 0.1, 90)[:number]))
    assert sum("iteration " in line for line in diary.log) <= 45
    starts = ("fold 1 of 10, iteration ", "fold 1 of 10, phase: ")
    assert all(line.startswith(starts) for line in diary.log)


@pytest.mark.usefixtures("_every_pass")
def test_the_share_of_a_fit_in_rounds_never_falls():
    fit = Texts(STEPS, ROUNDS)
    shares, stages = [fit.share], [fit.stage]

    def seen():
        shares.append(fit.share)
        stages.append(fit.stage)

    for number, change in enumerate((0.5, 0.6, 0.1, 0.001), start=1):
        for changes in ((1.0,), (1.0, 0.5), (1.0, 0.5, 0.001)):
            fit.on_task(1, 2)
            fit.show_pass()
            assert fit.texts[-1].startswith(f"{fit.stage}, rows 50%")
            seen()
            fit.on_iteration(state(*changes))
            name = f"round {number}, iteration {len(changes)}, objective 2, change "
            assert fit.texts[-1].startswith(name)
            seen()
        fit.on_round(ended_round(number, change))
        assert fit.texts[-1].startswith(f"round {number}, objective 1, movement ")
        seen()
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.9)
    assert stages[0] == stages[1] == "preparing"
    assert {"round 1, checking", "round 2, iteration 1", "clusters"} < set(stages)


def ended_round(number, change):
    return Round(number, 1.0, 1.0, (1.0,), change, change / 2, 3, 0.1, last=change < 0.01)


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
