"""The notebooks run as they stand, and print what they show."""

import base64
import re

import nbformat
import pytest
from notebooks import HOUSE, METADATA, execute, outputs, text_of

NOTEBOOKS = sorted(HOUSE.glob("examples/*.ipynb"))
_NUMBER = re.compile(r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")
# Figures of a run that differ from machine to machine.
_OF_THE_MACHINE = ("Seconds", "Error of J", "Residual")


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(path, tmp_path):
    shown = outputs(nbformat.read(path, as_version=4))
    printed = outputs(execute(path, tmp_path))
    assert [each["output_type"] for each in printed] == [each["output_type"] for each in shown]
    for now, then in zip(map(text_of, printed), map(text_of, shown), strict=True):
        assert _words(now) == _words(then)
        assert _numbers(now) == pytest.approx(_numbers(then), rel=0.02, abs=0.02)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_nothing_of_the_machine_that_ran_it(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata == METADATA
    assert all(not cell["metadata"] for cell in notebook.cells)
    code = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    for each in outputs(notebook):
        assert each.get("name", "stdout") == "stdout"  # no warning either
        assert not re.search(r"[\s'\"](/|~|\w:\\)\w|\wWarning", f" {text_of(each)}")
        picture = each.get("data", {}).get("image/png", "")
        assert len(base64.b64decode(picture)) < 60_000


def _lines(text):
    return [line for line in text.splitlines() if not line.lstrip().startswith(_OF_THE_MACHINE)]


def _words(text):
    """Return the words of an output; tables may have other widths."""
    return [_NUMBER.sub("#", word) for line in _lines(text) for word in line.strip(" ─").split()]


def _numbers(text):
    found = (number for line in _lines(text) for number in _NUMBER.findall(line))
    return [float(number.replace(",", "")) for number in found]
