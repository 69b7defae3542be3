"""Run notebooks and write their outputs into them: `python tests/notebooks.py NOTEBOOK...`."""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

HOUSE = Path(__file__).resolve().parents[1]
# Nothing of the machine on which it was run.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute(path, folder):
    """Return a notebook after a run of all its cells in `folder`."""
    notebook = nbformat.read(path, as_version=4)
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(HOUSE),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    with patch.dict(os.environ, environment):
        place = {"metadata": {"path": str(folder)}}
        options = {"record_timing": False, "coalesce_streams": True, "resources": place}
        NotebookClient(notebook, kernel_name="python3", timeout=120, **options).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for each in outputs(notebook):
        if each["output_type"] == "stream":
            lines = _COLOURS.sub("", each["text"]).splitlines()
            each["text"] = "".join(f"{line.rstrip()}\n" for line in lines)
    return notebook


def outputs(notebook):
    """Return the outputs of all cells of a notebook."""
    return [each for cell in notebook.cells for each in cell.get("outputs", [])]


def text_of(output):
    """Return what a cell printed, or the plain text of its value."""
    text = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    return str(text)


def main() -> None:
    """Run the notebooks that are named, each in an empty folder, and write them."""
    for name in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            nbformat.write(execute(Path(name), Path(folder)), name)


if __name__ == "__main__":
    main()
