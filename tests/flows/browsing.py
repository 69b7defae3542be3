"""A browser that tests open pages with, and pages as tests read them."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Visit:
    """A page that was opened: its requests, and its complaints."""

    found: Any = None
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def browsing(program: str) -> Iterator[Callable[..., Visit]]:
    """Yield a function of an address, of what finds something on the page, and more options.

    The latter is given playwright's `Page`; options go to playwright's `new_context`.
    """
    # In a thread of its own: its event loop keeps running, which no other can share.
    with ThreadPoolExecutor(1, thread_name_prefix="browser") as thread:
        playwright, browser = thread.submit(_launched, program).result()
        yield lambda *given, **more: thread.submit(_visited, browser, *given, **more).result()
        for end in (browser.close, playwright.stop):
            thread.submit(end).result()


def _launched(program: str) -> tuple[Any, Any]:
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    # Chromium keeps root out of its sandbox.
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright, playwright.chromium.launch(executable_path=program, args=alone)


def _visited(browser: Any, address: str, look: Callable[[Any], Any], **context: Any) -> Visit:
    visit = Visit()
    with browser.new_context(**context) as opened:
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
