"""Every data set of the registry: raw files in, the same numbers out."""

import shutil

import numpy as np
import pytest

from flows.builtin import ingest
from flows.builtin.catalogue import DATASETS, content_digest
from flows.builtin.raw_files import RawFileError, find_or_download
from storage import StorageError, ingest_table, list_datasets, open_dataset

LONG = ("mnist", "train")
CASES = [
    pytest.param(name, split, marks=[pytest.mark.long] * ((name, split) == LONG))
    for name, spec in DATASETS.items()
    for split in spec.splits
]


@pytest.fixture
def raw_files(request):
    """Point to the raw files where the data set of the test needs some."""
    name = request.node.callspec.params["name"]
    if any(split.raw for split in DATASETS[name].splits.values()):
        request.getfixturevalue("reference_data")


@pytest.mark.parametrize(("name", "split"), CASES)
@pytest.mark.usefixtures("raw_files")
def test_round_trip(name, split):
    spec, expected = DATASETS[name], DATASETS[name].splits[split]
    data = ingest(name, split)
    raw = spec.load(*(find_or_download(name, file) for file in expected.raw))
    # The digest has the type of X in it, all values and the names of the labels.
    assert data.data_hash == content_digest(raw.X, raw.labels) == expected.content_sha256
    X = data.X.read(0, expected.rows)
    assert data.X.shape == X.shape == (expected.rows, spec.columns)
    np.testing.assert_array_equal(X, raw.X)
    assert data.class_names.keys() == raw.labels.keys()
    for label, codes in raw.labels.items():
        np.testing.assert_array_equal(data.labels[label], codes)
        assert len(np.unique(codes)) == len(data.class_names[label])
    assert data.y is (data.labels[spec.default_label] if spec.default_label else None)


@pytest.mark.usefixtures("reference_data")
def test_what_the_data_sets_say_about_themselves():
    face, cancer, mnist = ingest("face"), ingest("cancer"), ingest("mnist")
    assert face.image_shape == (30, 32)
    assert face.class_names["pose"] == ("left", "right", "straight", "up")
    assert cancer.feature_names[5] == "bare_nuclei"
    assert (mnist.split, mnist.image_shape) == ("test", (28, 28))
    assert [line.folder for line in list_datasets()] == ["cancer", "face", "mnist-test"]
    assert open_dataset("mnist-test").data_hash == mnist.data_hash


def test_ingest_again_does_nothing_but_repair_and_force_gives_the_same_bytes():
    progress = []
    first = ingest("wine", progress=lambda done, rows: progress.append((done, rows)))
    inode = first.path.stat().st_ino
    assert ingest("wine").path.stat().st_ino == inode
    again = ingest("wine", force=True)
    assert again.path.stat().st_ino != inode
    assert again.X == first.X
    assert progress == [(178, 178)]
    first.X.verify()
    # A store that lacks a file is repaired.
    (again.path / "X" / "c.0.0").unlink()
    ingest("wine").X.verify()


def test_a_table_under_a_known_name_is_replaced_only_if_forced():
    ingest_table(np.eye(3), "wine")
    with pytest.raises(StorageError, match="a table is stored as 'wine'"):
        ingest("wine")
    assert ingest("wine", force=True).X.shape == (178, 13)


def test_a_missing_raw_file_without_a_home_says_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ISM_DASK_DATA", str(tmp_path))
    with pytest.raises(RawFileError, match=r"flower\.png.*ISM_DASK_DATA"):
        ingest("flower")


def test_wrong_values_are_refused_and_the_old_store_stays(reference_data, monkeypatch, tmp_path):
    good = ingest("cancer")
    other = tmp_path / "raw"
    shutil.copytree(reference_data / "cancer", other, copy_function=shutil.copyfile)
    other.chmod(0o755)
    file = other / "breast-cancer-wisconsin.data"
    file.write_text(file.read_text().replace("1000025,5", "1000025,6", 1))
    monkeypatch.setenv("ISM_DASK_DATA", str(other))
    with pytest.raises(RawFileError, match=r"breast-cancer-wisconsin\.data"):
        ingest("cancer", force=True)
    monkeypatch.delenv("ISM_DASK_DATA")
    assert open_dataset("cancer").data_hash == good.data_hash
    assert sorted(p.name for p in good.path.parent.iterdir()) == [".lock", "cancer"]
