"""The Python of README and docs runs as it stands, page by page.

Blocks marked `python` are run, those marked `pycon` also have to print what they show; blocks of a
page share their names. `<!-- not run: REASON -->` before a block leaves it out.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import matplotlib as mpl
import pytest

HOUSE = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+ -->\n+)?"
    r"^(?P<margin> *)```(?P<kind>python|pycon)\n(?P<code>.*?)^(?P=margin)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """Code of a page, from some line on."""

    page: Path
    kind: str
    line: int
    code: str

    def run(self, names: dict[str, Any]) -> None:
        """Run it with the names that the blocks before have left."""
        if self.kind == "python":
            # Lines before it, so that a traceback tells that of the page.
            source = "\n" * self.line + self.code
            exec(compile(source, str(self.page), "exec"), names)
            return
        told: list[str] = []
        parts = doctest.DocTestParser().get_doctest(
            self.code, names, self.page.name, str(self.page), self.line
        )
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
        runner.run(parts, out=told.append, clear_globs=False)
        names.update(parts.globs)
        assert not told, "".join(told)


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, found["kind"], text.count("\n", 0, found.start("code")), dedent(found["code"]))
        for found in BLOCK.finditer(text)
        if not found["skip"]
    ]


PAGES = {
    page.relative_to(HOUSE).as_posix(): blocks
    for page in [HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", *sorted(HOUSE.glob("docs/*.md"))]
    if (blocks := blocks_of(page))
}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)  # what it writes is not for the checkout
    mpl.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in PAGES[page]:
            block.run(names)
    finally:
        plt.close("all")


def test_there_are_pages_with_code() -> None:
    assert {"README.md", "docs/first-run.md", "docs/reading.md", "docs/kernels.md"} <= set(PAGES)


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*HOUSE.glob("*.md"), *HOUSE.glob("docs/*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    ]
    assert len(links) > 10
    assert [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()] == []
