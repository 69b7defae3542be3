"""Check the links of a built site: each local one leads to a page and a heading that exist.

It also refuses scripts, styles and pictures from other sites, so that a reader needs no network,
and pages without an icon, for which browsers would ask for a favicon.ico that is not there.

Usage: python docs/check_links.py FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(eq=False)
class Page(HTMLParser):
    """The addresses that a page links to or loads, and the names of its places."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    has_icon: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses and the name of an element."""
        values = {key: value for key, value in attrs if value}
        self.names.update(values[key] for key in ("id", "name") if key in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "img", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        elif tag == "link" and values.get("rel", "") in ("stylesheet", "icon"):
            self.loaded.append(values["href"])
            self.has_icon |= values["rel"] == "icon"


def read_pages(folder: Path) -> dict[Path, Page]:
    """Return the pages of a site by their paths."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.parts:  # templates of the theme
            continue
        pages[path] = Page()
        pages[path].feed(path.read_text())
    return pages


def problems_of(folder: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each file of another site."""
    pages = read_pages(folder.resolve())
    problems = []
    for path, page in pages.items():
        where = path.relative_to(folder.resolve())
        foreign = [address for address in page.loaded if urlsplit(address).netloc]
        problems += [f"{where}: loads {address} from another site" for address in foreign]
        problems += [] if page.has_icon else [f"{where}: no icon"]
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                problems.append(f"{where}: no file {address}")
            elif parts.fragment and unquote(parts.fragment) not in _names(pages, target):
                problems.append(f"{where}: no place {address}")
    return problems


def _names(pages: dict[Path, Page], path: Path) -> set[str]:
    return pages[path].names if path in pages else set()


def main() -> int:
    """Print the problems of the site in the folder that the command line names."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(
            "Usage: python docs/check_links.py FOLDER, the folder of the built site",
            file=sys.stderr,
        )
        return 2
    folder = Path(sys.argv[1])
    problems = problems_of(folder)
    print("\n".join(problems) or f"{folder}: every local link leads somewhere")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
