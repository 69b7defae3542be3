"""A browser that tests open pages with, and pages as tests read them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Self


@dataclass
class Visit:
    """A page that was opened: its requests, and its complaints."""

    found: Any = None
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browsing:
    """A browser in a thread of its own: its event loop keeps running, which no other can share."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")

    def __enter__(self) -> Self:
        self._thread.submit(self._start).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def visit(self, address: str, look: Callable[[Any], Any], **context: Any) -> Visit:
        """Open a page and return what `look` finds on it, given playwright's `Page`.

        `context` goes to playwright's `new_context`: `viewport`, `color_scheme` and others.
        """
        return self._thread.submit(self._visit, address, look, context).result()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        # Chromium keeps root out of its sandbox.
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._browser = self._playwright.chromium.launch(executable_path=self._program, args=alone)

    def _stop(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def _visit(self, address: str, look: Callable[[Any], Any], context: dict[str, Any]) -> Visit:
        visit = Visit()
        with self._browser.new_context(**context) as opened:
            page = opened.new_page()
            page.on("request", lambda request: visit.requests.append(request.url))
            page.on("pageerror", lambda error: visit.complaints.append(str(error)))
            page.on("console", lambda said: _note(visit, said))
            page.goto(address)
            visit.found = look(page)
        return visit


def _note(visit: Visit, said: Any) -> None:
    if said.type in ("error", "warning"):
        visit.complaints.append(said.text)


class Page(HTMLParser):
    """The elements of a page, its texts, and the rows of its tables, if all is closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())
        if {"th", "td"} & {*self.open}:
            self.rows[-1][-1] += data.strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]
