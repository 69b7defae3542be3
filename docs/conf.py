"""Configuration of the documentation site: `make docs` builds it with Sphinx, offline."""

from __future__ import annotations

import os
import re
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx
from sphinx_gallery.sorting import FileNameSortKey

project = "ism_dask"
author = "the ism_dask developers"
release = version_of("ism-dask")
html_title = f"ism_dask {release}"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
# The pages of `gallery` come in through Sphinx-Gallery, which writes `auto_gallery`.
exclude_patterns = ["_build", "gallery"]
root_doc = "index"
nitpicky = False
# The order of the gallery is a class, which cannot be cached; pages of tables start with a heading
# of the second level, as they are parts of a page.
suppress_warnings = ["config.cache", "myst.header"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc shows the types of parameters
numpydoc_show_class_members = False
# A list of attributes would repeat the section "Attributes" of the docstrings.
numpydoc_class_members_toctree = False

myst_heading_anchors = 3
html_theme = "pydata_sphinx_theme"
html_favicon = "icon.svg"  # without one, browsers ask for a favicon.ico
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "/plot_",
    "within_subsection_order": FileNameSortKey,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,  # those of this machine say nothing on another
    "min_reported_time": float("inf"),
    "capture_repr": (),
    "remove_config_comments": True,
    "doc_module": ("ism_dask",),
    "backreferences_dir": None,
    "abort_on_example_error": True,
}
# Warnings of an example are errors, as everywhere in the project.
os.environ.setdefault("MPLBACKEND", "Agg")

_ROOT = Path(__file__).resolve().parents[1]
# Pages of the repository that are pages of the site, too.
_PAGES = {
    "SECURITY.md": "auto_security.md",
    "CHANGELOG.md": "auto_changes.md",
    "CONTRIBUTING.md": "auto_contributing.md",
    "README.md": "index.md",
}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def _write_pages(app: Sphinx) -> None:
    """Write the pages that other files hold: the help of commands and those of the repository."""
    folder = Path(app.srcdir)
    _write(folder / "auto_cli.md", _command_reference())
    for name, page in _PAGES.items():
        if page.startswith("auto_"):
            _write(folder / page, _LINK.sub(_without_docs_folder, (_ROOT / name).read_text()))


def _write(page: Path, text: str) -> None:
    # A page that is written anew is built anew.
    if not page.exists() or page.read_text() != text:
        page.write_text(text)


def _command_reference() -> str:
    """Return the help of all commands as Markdown."""
    from typer.cli import get_docs_for_click  # noqa: PLC0415 - only a build needs the commands
    from typer.main import get_command  # noqa: PLC0415

    from flows.cli.app import app as commands  # noqa: PLC0415

    command = get_command(commands)
    context = command.make_context("ism-dask", [], resilient_parsing=True)
    return get_docs_for_click(obj=command, ctx=context, name="ism-dask", title="The command line")


def _without_docs_folder(link: re.Match[str]) -> str:
    """Return a link of a page at the top of the repository as seen from the folder of the site."""
    text, target = link.groups()
    if "://" in target or target.startswith("#"):
        return link[0]
    inside = target.removeprefix("docs/")
    return f"[{text}]({inside if inside != target else '../' + target})"


def _link_inside_site(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Rewrite links to files outside the site: to the page that shows the file, or to its path."""
    source[0] = _LINK.sub(_inside_site, source[0])


def _inside_site(link: re.Match[str]) -> str:
    text, target = link.groups()
    if not target.startswith("../"):
        return link[0]
    path, mark, anchor = target.removeprefix("../").partition("#")
    if path in _PAGES:
        return f"[{text}]({_PAGES[path]}{mark}{anchor})"
    return text if text == path else f"{text} (`{path}`)"


def setup(app: Sphinx) -> None:
    """Connect the functions of this file to the build."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _link_inside_site)
