"""How far a fit says that it is, within its iterations too."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from io import StringIO
from itertools import groupby, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from support import Diary, store_own
from waiting import wait

import flows.interface.progress
from flows.errors import FlowError
from flows.interface.fit_progress_reports import FitReports, watched_fit
from flows.interface.progress import ProgressShare, watch_progress
from flows.runs.crossval import crossval_plain
from flows.runs.fit import fit_plain
from flows.settings.runs import CrossvalSettings, FitSettings
from ism_dask.observe import fit_progress
from ism_dask.observe.earlier_course import EarlierCourse
from ism_dask.observe.fit_progress import FitProgress, Pass, converged_share
from ism_dask.observe.progress_bar import bar_columns
from ism_dask.observe.steps_left import StepsLeft
from ism_dask.observe.time_left import TimeLeft, duration
from ism_dask.records.checkpoint import Round
from ism_dask.records.stopping_rule import Stopping
from ism_dask.rows.shards import cut

STOPPING = Stopping(tol=0.01, max_iter=100)


@pytest.fixture
def _every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let passes be told of that are over in no time."""
    monkeypatch.setattr(fit_progress, "_LONG", -1.0)
    monkeypatch.setattr(flows.interface.progress, "_EVERY", 1e-4)


def state(*changes: float, angle: float = 0.0) -> SimpleNamespace:
    history = [
        SimpleNamespace(
            change=change,
            angle=angle,
            iteration=number,
            objective=2.0,
            seconds=0.0,
            settled=change < STOPPING.tol and angle < 0.1,
        )
        for number, change in enumerate(changes, start=1)
    ]
    current = SimpleNamespace(objective=2.0)
    return SimpleNamespace(history=history, iteration=len(changes), current=current)


def test_the_share_of_a_fit_follows_the_change() -> None:
    assert converged_share(state(1.0), STOPPING) == 0.01
    assert converged_share(state(1.0, 0.1), STOPPING) == pytest.approx(0.5)
    assert converged_share(state(1.0, 0.1, 0.3), STOPPING) == pytest.approx(0.5)
    assert converged_share(state(1.0, 0.001), STOPPING) == 1.0
    assert converged_share(state(0.001), STOPPING) == 1.0
    assert converged_share(state(1.0, 0.9), Stopping(0.01, max_iter=2)) == 1.0


def test_the_share_of_a_fit_waits_for_the_angle() -> None:
    both = Stopping(tol=0.01, angle_tol=0.1, max_iter=100)
    assert converged_share(state(1.0, 0.001, angle=1.0), both) == 0.02
    assert converged_share(state(1.0, 0.001, angle=0.05), both) == 1.0


def test_a_part_tells_of_the_whole() -> None:
    diary = Diary()
    with watch_progress(diary):
        fold = ProgressShare(0.2, 0.6, "fold 2 of 10")
        fold.report(0.5, "iteration 3")
        fold.until(0.5).report(1.0)
        ProgressShare().report(0.75, "alone")
    assert diary.shares == pytest.approx([0.4, 0.4, 0.75])
    assert diary.texts == ["fold 2 of 10, iteration 3", "fold 2 of 10", "alone"]


def test_a_pass_tells_how_far_it_is() -> None:
    half = Pass(first=11.0, last=20.0, done=5, total=10, after=0)
    assert half.text == "rows 50%"
    assert half.is_long(now=12.5)
    assert not half.is_long(now=11.5)
    whole = Pass(first=11.0, last=11.5, done=10, total=10, after=1)
    assert whole.text == "pass 2, rows 100%"
    assert not whole.is_long(now=99.0)


def test_the_time_left_is_told_when_there_is_something_to_go_by() -> None:
    seconds = 0.0
    left = TimeLeft(lambda: seconds)
    told = []
    for now, share in [(0.5, 0.1), (1.0, 0.2), (4.0, 0.4), (6.0, 0.4), (8.0, 1.0)]:
        seconds = now
        left.tick(share)
        told.append(left.after("text"))
    assert told == ["text", "text", "text, about 2 s left", "text, about 1 s left", "text"]


def test_the_time_left_does_not_jump() -> None:
    seconds = 0.0
    left = TimeLeft(lambda: seconds)
    for share in (0.1, 0.2, 0.3):
        seconds += 10.0
        left.tick(share)
    assert str(left) == "about 70 s left"
    left.tick(0.9)  # a leap, of which 3 s would follow
    assert str(left) == "about 50 s left"
    seconds += 1000.0
    assert str(left) == "about 1 s left"


def test_a_time_left_that_cannot_be_known_is_not_told() -> None:
    seconds = 10.0
    left = TimeLeft(lambda: seconds)
    seconds = 20.0
    left.tick(0.1, 40.0)
    assert left.after("text") == "text, about 40 s left"
    seconds = 30.0
    assert left.after("text") == "text, about 30 s left"
    left.tick(0.2, math.inf)
    assert left.after("text") == "text"


def test_what_is_left_of_a_part_counts_the_parts_after_it() -> None:
    diary = Diary()
    with watch_progress(diary):
        part = ProgressShare(0.2, 0.4)
        part.report(0.5, spent=6.0, left=4.0)
        part.until(0.5).report(0.5, spent=2.0, left=3.0)
        part.report(0.5, spent=6.0, left=math.inf)
        replace(part, ends=time.monotonic() + 100.0).report(0.5, spent=6.0, left=math.inf)
    assert diary.left[:3] == pytest.approx([4.0 + 3 * 10.0, 3.0 + 7 * 5.0, math.inf])
    assert diary.left[3] == pytest.approx(100.0, abs=30.0)


@pytest.mark.parametrize("swings", [0.0, 0.5])
def test_steps_to_come_follow_from_a_steady_fall(swings: float) -> None:
    left = StepsLeft(1e-4, most=300)
    found = []
    for step in range(40):
        left.add(0.8**step * math.exp(swings * (-1) ** step))
        found.append(left.steps)
    # 0.8 ** 41.3 is the tolerance.
    assert found[:8] == [None] * 8
    assert found[20] == pytest.approx(41.3 - 20, rel=0.2)
    assert found[30] == pytest.approx(41.3 - 30, rel=0.2)


def test_steps_to_come_cannot_be_known_of_values_that_stay_or_leap() -> None:
    swinging, leaping, bounded = (StepsLeft(1e-4, most=300) for _ in range(3))
    changing = StepsLeft(1e-4, most=300, changes_at=100)
    for step in range(50):
        swinging.add(0.6 + 0.2 * (-1) ** step)
        leaping.add(0.1 ** (step // 15))
        assert swinging.steps is leaping.steps is None
        bounded.add(0.99**step)
        changing.add(0.99**step)
    assert bounded.steps == 250
    assert changing.steps is None


def test_the_time_left_of_a_fit_follows_from_its_course(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(fit_progress, "time", SimpleNamespace(monotonic=lambda: now))
    progress, left = FitProgress(STOPPING), []
    for number in range(1, 22):
        now += 10.0
        progress.on_iteration(state(*(0.8**step for step in range(number))))
        left.append(progress.left)
    assert left[:4] == [math.inf] * 4
    # The change falls below the tolerance in the 22nd iteration, and a tenth of them is 21 s.
    assert left[12:20] == pytest.approx([10.0 * (22 - number) for number in range(13, 21)], abs=21)
    assert progress.share == pytest.approx(21 / 22, abs=0.1)
    progress.on_iteration(state(*(0.8**step for step in range(22))))
    assert progress.left == math.inf  # it has ended


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_the_time_left_follows_from_an_earlier_fit(pace: float) -> None:
    ends = np.cumsum(np.random.default_rng(0).uniform(0.5, 2.0, 30))
    measured = 0.8 ** np.arange(30)
    earlier = EarlierCourse(tuple(ends), tuple(measured), 7.0)
    truth = pace * (ends[-1] + 7.0 - ends)
    left = [earlier.seconds_left(pace * ends[:done], measured[:done]) for done in range(1, 31)]
    assert left[0] == math.inf
    # The pace of the other fit is known once both have done more than a few iterations.
    known = slice(1, 30) if pace == 1.0 else slice(12, 30)
    ratios = np.divide(left[known], truth[known])
    assert ((ratios >= 1 / 1.5) & (ratios <= 1.5)).all()
    assert left[29] == pytest.approx(7.0 * pace, rel=0.2)
    # It goes on beyond the end of the earlier one, or is elsewhere than that was.
    assert earlier.seconds_left(np.arange(31.0), np.ones(31)) == math.inf
    assert earlier.seconds_left(pace * ends[:9], 50.0 * measured[:9]) == math.inf


def test_a_fit_that_is_repeated_knows_its_time_from_the_second_iteration_on() -> None:
    store_own(3000)
    settings = FitSettings(
        dataset="own",
        sigma="median",
        criterion="dependence",
        engine="exact",
        max_iter=12,
        run="own",
    )
    given: list[tuple[str, float | None]] = []
    watcher = SimpleNamespace(
        tick=lambda _share, text, left=None: given.append((text, left)),
        linked=print, noted=print, logged=print,
    )  # fmt: skip

    def known(**changes: object) -> list[int]:
        """Return the numbers of the iterations whose ends had a time left."""
        given.clear()
        with watch_progress(watcher):
            fit_plain(replace(settings, **changes))
        ends = [re.search(r"iteration (\d+), obj", text) for text, _ in given]
        pairs = zip(ends, given, strict=True)
        return [int(end[1]) for end, (_, left) in pairs if end and left and math.isfinite(left)]

    first = known()
    assert 2 not in first
    assert {2, 3, 4, 5} <= set(known(force=True))
    # Under another name, of the day before, and with another place or name it is the same fit.
    assert 2 in known(run="night", keep_runs=2)
    # Another kernel is another fit.
    assert 2 not in known(run="other", sigma="3.5")


def test_a_fold_takes_as_long_as_those_before_it() -> None:
    store_own(3000)
    diary = Diary()
    settings = CrossvalSettings(
        dataset="own", sigma="median", folds=3, criterion="dependence", engine="exact", max_iter=9
    )
    with watch_progress(diary):
        crossval_plain(settings)
    later = [left for left, text in zip(diary.left, diary.texts, strict=True) if "fold 3" in text]
    assert all(left is not None and math.isfinite(left) for left in later)


def test_durations_are_told_in_words() -> None:
    assert [duration(seconds) for seconds in (1.0, 99.0, 100.0, 5000.0, 7300.0)] == [
        "1 s",
        "99 s",
        "2 min",
        "83 min",
        "2 h",
    ]


@pytest.mark.usefixtures("_every_pass")
def test_passes_move_the_share_of_every_iteration_and_of_the_check() -> None:
    diary = Diary()
    progress = FitReports(ProgressShare(), STOPPING)

    def pass_of(tasks: int) -> None:
        for done in range(1, tasks + 1):
            progress.on_task(done, tasks)
            progress.report_pass()

    with watch_progress(diary):
        progress.report_pass()  # nothing is under way
        pass_of(2)
        pass_of(2)
        progress.on_iteration(state(1.0))
        pass_of(2)
        progress.on_iteration(state(1.0, 0.001))
        pass_of(1)
    assert diary.texts == [
        "preparing, rows 50%",
        "preparing, rows 100%",
        "preparing, pass 2, rows 50%",
        "preparing, pass 2, rows 100%",
        "iteration 1, objective 2",
        "iteration 2, rows 50%, objective 2",
        "iteration 2, rows 100%, objective 2",
        "iteration 2, objective 2",
        "checking, rows 100%, objective 2",
    ]
    ends = [share for share, text in zip(diary.shares, diary.texts, strict=True) if "rows" in text]
    assert all(one < two for one, two in pairwise(ends))
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[0] > 0
    assert diary.shares[-1] < 1


def test_short_passes_are_not_told_of() -> None:
    diary = Diary()
    progress = FitReports(ProgressShare(), STOPPING)
    with watch_progress(diary):
        for done in (1, 2, 3):
            progress.on_task(done, 3)
            progress.report_pass()
    assert diary.texts == []


@pytest.mark.usefixtures("_every_pass")
def test_a_fit_tells_of_its_passes_from_its_own_thread() -> None:
    store_own(3000)
    diary = Diary()
    settings = FitSettings(
        dataset="own",
        sigma="median",
        criterion="dependence",
        engine="exact",
        tol=1e-12,
        max_iter=12,
    )
    with watch_progress(diary):
        fit_plain(settings)
    assert any(re.search(r"^iteration \d+, (pass \d+, )?rows \d+%", each) for each in diary.texts)
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0


@pytest.mark.usefixtures("_every_pass")
def test_a_fold_tells_of_its_passes_and_of_its_classifier() -> None:
    store_own(6000)
    diary = Diary()
    settings = CrossvalSettings(
        dataset="own",
        sigma="median",
        folds=2,
        criterion="dependence",
        engine="exact",
        tol=1e-12,
        max_iter=12,
    )
    with watch_progress(diary):
        crossval_plain(settings)
    for fold in ("fold 1 of 2", "fold 2 of 2"):
        own = [text for text, _ in groupby(diary.texts) if text.startswith(fold)]
        assert any("rows " in text for text in own)
        assert own[-3:-1] == [
            f"{fold}, training the classifier",
            f"{fold}, judging the held-out rows",
        ]
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0


@pytest.mark.usefixtures("_every_pass")
def test_whoever_cannot_be_told_does_not_stop_the_fit_from_aside() -> None:
    class Gone(Diary):
        def tick(self, share: float, text: str, left: float | None = None) -> None:
            super().tick(share, text, left)
            raise OSError("nobody there")

    gone = Gone()
    with watch_progress(gone), watched_fit(ProgressShare(), STOPPING):
        assert cut(np.ones((6, 2)), 2).fold(lambda piece: piece.X.sum()) == 12
        wait(lambda: gone.texts, every=1e-3)
    # Told once, at whichever task it was, and never again.
    assert len(gone.texts) == 1
    assert re.match(r"preparing, rows \d+%", gone.texts[0])


@pytest.mark.parametrize(("iterations", "lines"), [(7, 7), (60, 30), (5000, 45)])
def test_the_log_of_a_long_fit_is_short(iterations: int, lines: int) -> None:
    diary, slow = Diary(), Stopping(1e-9, max_iter=6000)
    changes = np.geomspace(1.0, 1e-6, iterations).tolist()
    with watch_progress(diary), watched_fit(ProgressShare(), slow) as reports:
        history = state(*changes).history
        for number in range(1, iterations + 1):
            current = SimpleNamespace(objective=2.0)
            done = SimpleNamespace(history=history[:number], iteration=number, current=current)
            reports.on_iteration(done)
    logged = [int(re.findall(r"^iteration (\d+): J 2, change ", line)[0]) for line in diary.log]
    assert logged == sorted(set(logged))
    assert logged[:7] == [1, 2, 3, 4, 5, 6, 7]
    assert logged[-1] == iterations
    assert len(logged) <= lines
    early, middle, late = (
        sum(low < number <= high for number in logged)
        for low, high in pairwise([0, iterations // 3, 2 * iterations // 3, iterations])
    )
    if iterations > 7:
        assert middle < min(early, late)


def test_a_fold_has_its_share_of_the_log() -> None:
    diary = Diary()
    for part in ProgressShare().named("fold 1 of 10").cut(10):
        with watch_progress(diary), watched_fit(part, STOPPING) as reports:
            for number in range(1, 90):
                reports.on_iteration(state(*np.geomspace(1.0, 0.1, 90)[:number]))
    assert len(diary.log) <= 45
    assert all(line.startswith("fold 1 of 10, iteration ") for line in diary.log)


def test_an_error_of_the_fit_comes_through() -> None:
    with pytest.raises(FlowError, match="as it is"), watched_fit(ProgressShare(), STOPPING):
        raise FlowError("as it is")


@pytest.mark.usefixtures("_every_pass")
def test_passes_after_the_last_round_are_of_the_clusters() -> None:
    diary = Diary()
    progress = FitReports(ProgressShare(), STOPPING, Stopping(0.01, max_iter=20))
    with watch_progress(diary):
        progress.on_round(ended_round(1, 0.5))
        progress.on_round(ended_round(2, 0.001))
        progress.on_task(1, 1)
        progress.report_pass()
    assert diary.texts == [
        "round 2, last change 0.5",
        "clusters",
        "clusters, rows 100%",
    ]
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] <= 1.0


@pytest.mark.usefixtures("_every_pass")
def test_the_share_of_a_fit_in_rounds_never_falls() -> None:
    progress = FitProgress(STOPPING, Stopping(0.01, max_iter=20))
    shares, stages = [progress.share], [progress.stage]

    def seen() -> None:
        shares.append(progress.share)
        stages.append(progress.stage)

    for number, change in enumerate((0.5, 0.6, 0.1, 0.001), start=1):
        for changes in ((1.0,), (1.0, 0.5), (1.0, 0.5, 0.001)):
            progress.on_task(1, 2)
            assert progress.advance_by_pass() == f"{progress.stage}, rows 50%"
            seen()
            name = progress.on_iteration(state(*changes))
            assert name == f"round {number}, iteration {len(changes)}"
            seen()
        assert progress.on_round(ended_round(number, change)) == f"round {number}"
        seen()
    assert progress.left == math.inf
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.8)
    assert stages[0] == stages[1] == "preparing"
    assert {"round 1, checking", "round 2, iteration 1", "clusters"} < set(stages)


def test_rounds_of_a_fit_that_has_none_are_an_error() -> None:
    with pytest.raises(TypeError, match="without rounds"):
        FitProgress(STOPPING).on_round(ended_round(1, 0.5))


def ended_round(number: int, change: float) -> Round:
    return Round(number, 1.0, 1.0, (1.0,), change, 3, 0.1, last=change < 0.01)


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_text_leaves_room_for_the_bar(width: int) -> None:
    console = Console(file=StringIO(), width=width)
    progress = Progress(*bar_columns(width, TimeElapsedColumn()), console=console)
    text = "fold 10 of 10, iteration 12, pass 3, rows 50%, objective 0.123456, 12 min left"
    progress.add_task(text, total=1.0, completed=0.4)
    console.print(progress.get_renderable())
    told = console.file.getvalue()
    assert re.match(r"fold 10 of 10, .*… [━╸╺ ]{5,} 40% 0:00:00\n$", told), told
    assert len(told) <= width + 1
