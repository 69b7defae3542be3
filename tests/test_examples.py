"""The examples run as they stand and print what they promise."""

import re
import sys
from pathlib import Path

import pytest
from daskparts import ran

HOUSE = Path(__file__).resolve().parents[1]


def printed(script, *options):
    """Run an example in a process of its own, warnings being errors; return what it prints."""
    own = {"PYTHONPATH": str(HOUSE), "MPLBACKEND": "Agg"}
    done = ran(sys.executable, "-W", "error", HOUSE / "examples" / script, *options, **own)
    assert done.returncode == 0, done.stderr
    assert "━" not in done.stderr  # no bar where there is no terminal
    return done.stdout


@pytest.mark.long
def test_wine_is_read_drawn_and_compared(tmp_path):
    picture = tmp_path / "wine.png"
    output = printed("wine_two_features.py", "--out", str(picture), "--folds", "3")
    for number in (1, 2):
        line = re.search(rf"new feature {number} \(explains (\d+)% alone\): \w+ [+-]0\.", output)
        assert line is not None
        assert 40 < int(line[1]) < 100
    assert picture.read_bytes().startswith(b"\x89PNG")
    worth = {
        name: float(mean) for name, mean in re.findall(r"^ +(\w+) +(0\.\d+) \+-", output, re.M)
    }
    assert set(worth) == {"PCA", "LDA", "IKDR"}
    assert worth["IKDR"] > 0.93


@pytest.mark.long
def test_an_earlier_sample_helps_a_small_one():
    alone, both = map(float, re.findall(r"direction (\d\.\d+)", printed("two_samples.py")))
    assert both > 0.995 > alone > 0.9


@pytest.mark.long
def test_rows_on_disk_are_fitted_on_a_cluster():
    output = printed("larger_than_memory.py", "--rows", "2000")
    assert "2,000 rows of 20 in 4 chunks" in output
    shown = r"the new features explain (\d+)% of y.*the true one: (0\.\d+)"
    shown = re.search(shown, output, re.DOTALL)
    assert shown is not None, output
    assert int(shown[1]) > 70
    assert float(shown[2]) < 0.2
    assert "new features on disk: 2,000 x 2 float32" in output
