"""Print constraints for the oldest versions that pyproject.toml allows of what users install."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# Extras for users; the tools of developers are always the newest.
TOOLS = {"dev", "docs"}
EXTRAS = [each for name, each in PROJECT["optional-dependencies"].items() if name not in TOOLS]

for requirement in sorted({*PROJECT["dependencies"], *(one for each in EXTRAS for one in each)}):
    match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement)
    if match:
        print(f"{match[1]}=={match[2]}")
