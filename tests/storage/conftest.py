"""What several tests of `storage` need."""

import numpy as np
import pytest

from storage import DatasetInfo, write_dataset


@pytest.fixture
def make_dataset(tmp_path):
    """Write a data set of 50 x 3 whole numbers in chunks of 20 rows; `seed` changes the values."""

    def make(seed=0, target=None):
        path = target or tmp_path / "home" / "datasets" / "small"
        X = np.random.default_rng(seed).integers(0, 256, (50, 3), np.uint8)
        info = DatasetInfo("small", class_names={"kind": ("a", "b")}, default_label="kind")
        write_dataset(path, info, [X], {"kind": X[:, 0] % 2}, chunk_rows=20)
        return path

    return make
