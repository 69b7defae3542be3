"""Print constraints for the oldest versions that pyproject.toml allows of what users install."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# The tools of developers, which are dependency groups, are always the newest.
EXTRAS = PROJECT["optional-dependencies"].values()

for requirement in sorted({*PROJECT["dependencies"], *(one for each in EXTRAS for one in each)}):
    match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement)
    if match:
        print(f"{match[1]}=={match[2]}")
