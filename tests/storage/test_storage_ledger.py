"""Results kept piece by piece: found for what was asked, never wrong, never half there."""

from __future__ import annotations

import math
import multiprocessing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import DamagedStore, PieceStore, UnsafeName, list_runs

REQUEST = {"cap": 600.0, "seed": 0}


def test_a_result_is_found_for_what_was_asked_and_nothing_else() -> None:
    ledger = PieceStore.of_run("tables")
    result = {"seconds": 0.1, "shown": [1, 2], "error": math.inf, "note": "ü"}
    assert ledger.find("wine-1", REQUEST) is None
    ledger.save("wine-1", REQUEST, result)
    assert ledger.find("wine-1", REQUEST) == result
    assert ledger.find("wine-1", {**REQUEST, "seed": 1}) is None
    assert ledger.find("wine-2", REQUEST) is None
    ledger.save("wine-1", {**REQUEST, "seed": 1}, {"seconds": 2.0})
    assert ledger.find("wine-1", {**REQUEST, "seed": 1}) == {"seconds": 2.0}
    ledger.clear()
    assert ledger.find("wine-1", REQUEST) is None


def test_a_ledger_alone_is_no_run() -> None:
    PieceStore.of_run("tables").save("a", {}, {"seconds": 1.0})
    assert list_runs() == ()


def test_names_do_not_lead_out() -> None:
    with pytest.raises(UnsafeName):
        PieceStore.of_run("tables").save("../a", {}, {})
    with pytest.raises(UnsafeName):
        PieceStore.of_run("../tables")


def _found_or_told(ledger: PieceStore) -> dict[str, float] | None:
    try:
        return ledger.find("a", REQUEST)
    except DamagedStore:
        return {"seconds": 1.25, "score": 0.5}


@given(st.data())
def test_a_changed_byte_never_gives_a_wrong_result(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ledger = PieceStore(tmp_path_factory.mktemp("ledger"))
    ledger.save("a", REQUEST, {"seconds": 1.25, "score": 0.5})
    path = ledger.folder / "a.json"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    path.write_bytes(content)
    # White space between the words says nothing: then the result is as it was.
    assert _found_or_told(ledger) == {"seconds": 1.25, "score": 0.5}


@given(st.data())
def test_a_file_cut_short_is_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ledger = PieceStore(tmp_path_factory.mktemp("ledger"))
    ledger.save("a", REQUEST, {"seconds": 1.25})
    path = ledger.folder / "a.json"
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(DamagedStore, match=r"a\.json"):
        ledger.find("a", REQUEST)


def _keep_many(number: int) -> None:
    ledger = PieceStore.of_run("tables")
    for step in range(20):
        ledger.save("shared", REQUEST, {"writer": number, "step": step, "long": "x" * 2000})


def test_two_that_write_at_once_leave_one_whole_result() -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_keep_many, args=(number,)) for number in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = PieceStore.of_run("tables").find("shared", REQUEST)
    assert found is not None
    assert found["step"] == 19
