"""`ism-dask check` names all that is not as it was written, and nothing else."""

from pathlib import Path

import pytest
from support import store_own

from storage import PartialResults, dataset_path, run_folder, save_results


@pytest.fixture(autouse=True)
def _filled():
    """Keep a data set, a run of the same name, and another run."""
    store_own(50)
    for name in ("own", "other"):
        save_results(name, "crossval", config={}, metrics={}, versions={})


def test_what_is_whole(here):
    table = here("check").out
    assert table.count("whole") == 3
    assert "damaged" not in table
    checked = here("check", "own", "--json").answer["checked"]
    own = [("data set", "own"), ("run", "own")]
    assert [(each["kind"], each["name"]) for each in checked] == own
    for each in checked:
        files = [path for path in Path(each["path"]).rglob("*") if path.is_file()]
        # The manifest is read, but not listed.
        listed = [path for path in files if path.name not in ("manifest.json", ".lock")]
        assert each["files"] == len(listed)
        assert each["bytes"] == sum(path.stat().st_size for path in listed)


def test_all_that_is_wrong_is_named(here):
    root, folder = dataset_path("own"), run_folder("other")
    chunk, label = root / "X" / "c.0.0", root / "labels" / "y" / "zarr.json"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\0")
    label.unlink()
    more = [root / "X" / "c.9.0", folder / "result" / "more", folder / "notes.txt"]
    for path in more:
        path.write_text("of nobody")
    (folder / "lease.json").write_text("{}")
    results = PartialResults.of_run("other")
    results.save("fold-1", {}, {"score": 1.0})
    entry = results.path("fold-1") / "record.json"
    entry.write_text(entry.read_text().replace("1.0", "2.0"))
    expected = {chunk, label, *more, folder / "lease.json", entry}
    ended = here("check", "--json")
    assert (ended.status, ended.out.count("\n")) == (1, 1)
    assert ("damaged" in ended.answer["error"], ended.answer["status"]) == (True, 1)
    found = [each["path"] for one in ended.answer["checked"] for each in one["problems"]]
    assert sorted(found) == sorted(map(str, expected))
    ended = here("check")
    assert ended.err.count("\n") == 1
    assert "7 files of own, other are damaged, the first" in ended.err
    for path in expected:
        assert str(path) in ended.out
    assert here("check", "own").err.startswith("ism-dask: 3 files of own are damaged")


def test_a_name_of_nothing(here):
    assert "did you mean 'other'" in here("check", "othr").failed(2)
    assert "`ism-dask ingest mnist` stores it" in here("check", "mnist").failed(2)
    assert "neither a data set nor a run '../own'" in here("check", "own", "../own").failed(2)


def test_all_splits_of_a_data_set_go_by_its_name(here):
    for split in ("test", "train"):
        dataset_path("own").rename(dataset_path(f"mnist-{split}"))
        store_own(50)
    checked = here("check", "mnist", "mnist-test", "--json").answer["checked"]
    assert [each["name"] for each in checked] == ["mnist-test", "mnist-train"]


def test_what_leads_out_of_the_home_is_named(tmp_path, here):
    outside = tmp_path / "outside"
    dataset_path("own").rename(outside)
    dataset_path("own").symlink_to(outside)
    run_folder("own").rename(tmp_path / "run")
    run_folder("other").with_name("own").symlink_to(tmp_path / "run")
    before = [*outside.iterdir(), *(tmp_path / "run").iterdir()]
    ended = here("check", "own")
    assert ended.status == 1
    assert "is a link to" in ended.err
    assert ended.out.count("is a link to") == 2
    assert [*outside.iterdir(), *(tmp_path / "run").iterdir()] == before
