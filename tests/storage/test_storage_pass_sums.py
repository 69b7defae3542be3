"""Sums of passes on disk: no bit lost, found for their request alone, and none that is damaged."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pytest

from storage import PassSums, StorageError, stored_items_named
from storage.pass_sums import pass_folders, sum_path

REQUEST = {"dataset": "wine", "sizes": (1, 2)}


def total(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(7, 3)), None, (float(rng.normal()), -0.0), np.float64(math.nan)


def bits(value: Any) -> Any:
    return tuple(map(bits, value)) if isinstance(value, tuple) else np.asarray(value).tobytes()


def test_sums_are_found_as_they_were_saved_and_for_their_request_alone() -> None:
    messages: list[str] = []
    sums = PassSums.of_run("own", REQUEST, tell=messages.append)
    assert sums.is_empty
    for number in (0, 11, 3):
        sums.save("one", number, total(number))
    found = sums.find("one")
    assert sorted(found) == [0, 3, 11]
    assert all(bits(found[number]) == bits(total(number)) for number in found)
    assert messages == ["resuming within a pass over the rows, from 3 saved sums"]
    assert sums.find("another") == {}
    assert PassSums.of_run("own", {**REQUEST, "dataset": "face"}).find("one") == {}
    sums.remove("one")
    assert sums.find("one") == {}
    sums.clear()
    assert sums.is_empty


def test_passes_stay_until_the_second_checkpoint_after_them() -> None:
    sums = PassSums.of_run("own", REQUEST)
    for key in ("one", "two"):
        sums.save(key, 0, 1.5)
    sums.retire()
    sums.save("three", 0, 2.5)
    assert len(pass_folders(sums.folder)) == 3
    later = PassSums.of_run("own", REQUEST)  # of the process that goes on
    assert later.find("two") == {0: 1.5}
    later.save("three", 1, 3.5)
    later.retire()
    assert [later.find(key) for key in ("one", "two", "three")] == [{}, {0: 1.5}, {0: 2.5, 1: 3.5}]


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "stranger"])
def test_a_damaged_sum_is_named_and_computed_again(damage: str) -> None:
    messages: list[str] = []
    sums = PassSums.of_run("own", REQUEST, tell=messages.append)
    for number in (0, 1):
        sums.save("one", number, total(number))
    (folder,) = pass_folders(sums.folder)
    path = sum_path(folder, 1)
    victim = next(each for each in path.rglob("*") if each.is_file() and "numbers/c" in str(each))
    if damage == "cut":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif damage == "flipped":
        victim.write_bytes(bytes([victim.read_bytes()[0] ^ 1, *victim.read_bytes()[1:]]))
    elif damage == "gone":
        victim.unlink()
    else:
        shutil.rmtree(path)
        path.mkdir()
    assert sorted(sums.find("one")) == [0]
    assert "computed again" in messages[0]
    (run,) = stored_items_named("own")
    problems = list(run.problems(lambda _: None))
    assert problems
    assert all(str(path) in str(each.path) for each in problems)


def test_nothing_is_saved_once_the_lease_is_gone() -> None:
    def gone() -> None:
        raise StorageError("taken over")

    sums = PassSums.of_run("own", REQUEST, check=gone)
    with pytest.raises(StorageError, match="taken over"):
        sums.save("one", 0, 1.0)
    assert sums.is_empty
