"""The Python of README and docs runs as it stands, page by page.

Blocks marked `python` are run, those marked `pycon` also have to print what they show; blocks of a
page share their names. `<!-- not run: REASON -->` before a block leaves it out. The commands of the
first run have to print what their page shows, but for seconds.
"""

import doctest
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import matplotlib as mpl
import pytest
import yaml

import ism_dask
from ism_dask import plot

HOUSE = Path(__file__).resolve().parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+ -->\n+)?"
    r"^(?P<margin> *)```(?P<kind>python|pycon)\n(?P<code>.*?)^(?P=margin)```$",
    re.MULTILINE | re.DOTALL,
)


def blocks_of(page):
    """Return kind, line and code of each block of a page that is run."""
    text = page.read_text()
    return [
        (found["kind"], text.count("\n", 0, found.start("code")), dedent(found["code"]))
        for found in BLOCK.finditer(text)
        if not found["skip"]
    ]


def run_block(page, kind, line, code, names):
    """Run a block with the names that the blocks before have left."""
    if kind == "python":
        # Lines before it, so that a traceback tells that of the page.
        exec(compile("\n" * line + code, page, "exec"), names)
        return
    parts, failures = doctest.DocTestParser().get_doctest(code, names, page, page, line), []
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    runner.run(parts, out=failures.append, clear_globs=False)
    names.update(parts.globs)
    assert not failures, "".join(failures)


MODULES = [name for _, name, _ in pkgutil.walk_packages(ism_dask.__path__, "ism_dask.")]
WITH_EXAMPLES = [name for name in MODULES if ">>> " in inspect.getsource(import_module(name))]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings_print_what_they_show(name):
    result = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert result.attempted
    assert not result.failed


# Without those that `make docs` writes from other files.
WRITTEN = [page for page in sorted(HOUSE.glob("docs/*.md")) if not page.name.startswith("auto_")]
PAGES = {
    page.relative_to(HOUSE).as_posix(): blocks
    for page in [HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", *WRITTEN]
    if (blocks := blocks_of(page))
}
# The code of these takes from three seconds to a minute.
SLOW = {"avoiding", "certainty", "classes", "dimensions", "first-run", "inputs", "kernels"}
SLOW |= {"clustering", "numbers", "reading", "transfer", "unfolding"}
EACH = [pytest.param(page, marks=[pytest.mark.long] * (Path(page).stem in SLOW)) for page in PAGES]


@pytest.mark.parametrize("page", EACH)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)  # what it writes is not for the checkout
    monkeypatch.setattr("ism_dask.inference.intervals._DRAWS", 999)
    mpl.use("Agg")
    names = {"__name__": "__main__"}
    try:
        for block in PAGES[page]:
            run_block(page, *block, names)
    finally:
        plt.close("all")


COMMAND = re.compile(r"^    \$ ism-dask (.+)\n((?:    .*\n|\n)*?)(?=    \$ |\S|\Z)", re.MULTILINE)


def _lines(output):
    """Return the lines of an output but for empty ones, rules, seconds, and what Prefect adds."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    drawn = [line for line in lines if line.strip("─") and not line.startswith("run: http")]
    return [re.sub("^(Seconds .*) .*", r"\1", line) for line in drawn]


def _pattern(shown):
    """Return what matches the lines of a page: `...` is the rest of a line, or any lines."""
    lines = []
    for line in _lines(shown):
        begun = re.escape(line.removesuffix("...").strip())
        lines.append(begun + (".*" if line.endswith("...") else "") + "\n")
        if line == "...":
            lines[-1] = "(?:.*\n)*?"
    return "".join(lines)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("docs/first-run.md", ["ingest", "crossval", "fit", "report", "transform"]),
        ("docs/own-data.md", ["ingest", "ingest", "fit", "report", "transform", "init", "run"]),
    ],
)
def test_the_commands_of_a_page_print_what_it_shows(page, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for block in PAGES[page][:1] if page == "docs/own-data.md" else []:
        run_block(page, *block, {})  # writes the files that the commands read
    commands = COMMAND.findall((HOUSE / page).read_text())
    assert [words.split()[0] for words, _ in commands] == expected
    for words, shown in commands:
        command = [sys.executable, "-m", "flows.cli", *words.split()]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        printed = ended.stdout.replace(os.environ["ISM_DASK_HOME"], "~/.ism-dask")
        found = "".join(f"{line}\n" for line in _lines(printed))
        assert re.fullmatch(_pattern(shown), found), f"{words} printed\n{found}"


def test_there_are_pages_with_code():
    assert {"README.md", "docs/first-run.md", "docs/reading.md", "docs/kernels.md"} <= set(PAGES)


def test_links_between_pages_lead_somewhere():
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    pages = [*HOUSE.glob("*.md"), *WRITTEN]
    links = [(page, each) for page in pages for each in link.findall(page.read_text())]
    assert len(links) > 10
    assert [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_the_functions_that_tables_name_exist():
    """A row of these tables ends with a file and a function of it."""
    row = re.compile(r"\| `([\w/{},]+\.py)` \| `(\w+)`")
    named = [
        (page, *found)
        for page in ("CONTRIBUTING.md", "docs/published.md")
        for found in row.findall((HOUSE / page).read_text())
    ]
    assert {page for page, *_ in named} == {"CONTRIBUTING.md", "docs/published.md"}
    for page, file, name in named:
        code = (HOUSE / file).read_text()
        assert re.search(rf"^ *(def|class) {name}\b", code, re.MULTILINE), (page, file, name)


def test_the_rooms_of_the_house_have_what_their_rows_name():
    rooms = re.compile(r"^\| `((?:flows|storage|ism_dask)/[^`]+)`(.*)\|$", re.MULTILINE)
    text = (HOUSE / "CONTRIBUTING.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    rows = rooms.findall(text)
    assert len(rows) > 20
    for first, row in rows:
        others, _, about = row.partition(" | ")
        paths = [HOUSE / path for each in (first, *_names(others)) for path in _expanded(each)]
        assert [path for path in paths if not path.exists()] == []
        files = [
            file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))
        ]
        code = "\n".join([*map(str, files), *(file.read_text() for file in files)])
        absent = (name for name in _names(about) if not re.search(rf"\b{name}\b", code))
        assert [name for name in absent if not (HOUSE / name).exists()] == []


def _names(text):
    return re.findall(r"`([\w./{},]+)`", text)


def _expanded(room):
    """Return the paths of a room such as storage/{runs,models}.py."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", room)
    if found is None:
        return [room]
    before, names, after = found.groups()
    return [
        f"{before}{name}" if name.endswith("/") else f"{before}{name}{after or '.py'}"
        for name in names.split(",")
    ]


def test_the_reference_has_every_public_name():
    listed = set(re.findall(r"^   (\w+)$", (HOUSE / "docs/api.md").read_text(), re.MULTILINE))
    modules = (ism_dask.kernels, ism_dask.solvers, plot)
    public = set(ism_dask.__all__) - {"__version__", "kernels"}
    public |= {name for module in modules for name in _functions_and_classes(module)}
    assert public <= listed, f"docs/api.md lacks {sorted(public - listed)}"


def _functions_and_classes(module):
    names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
    members = {name: getattr(module, name) for name in names}
    made = {k: v for k, v in members.items() if inspect.isclass(v) or inspect.isfunction(v)}
    return {name for name, member in made.items() if module.__name__ in member.__module__}


def test_one_version_everywhere():
    version = ism_dask.__version__
    assert f"\nversion: {version}\n" in (HOUSE / "CITATION.cff").read_text()
    tags = {
        "compose/compose.yaml": "image: ism-dask:{}",
        "kubernetes/kustomization.yaml": "newTag: {}",
        "conda/recipe.yaml": "  version: {}",
    }
    for file, tag in tags.items():
        assert f"{tag.format(version)}\n" in (HOUSE / "deploy" / file).read_text(), file
    newest = re.search(r"^## (\S+?),? ", (HOUSE / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == version


def test_the_conda_package_needs_what_the_wheel_needs():
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((HOUSE / "deploy/conda/recipe.yaml").read_text())
    wheel = [each.replace("dask>", "dask-core>") for each in project["dependencies"]]
    needed = [f"python{project['requires-python']}", *wheel]
    assert [each.replace(" ", "") for each in recipe["requirements"]["run"]] == needed


def test_a_release_tries_the_wheel_with_its_workflow():
    workflow = yaml.safe_load((HOUSE / ".github/workflows/release.yml").read_text())
    steps = [step.get("run") for step in workflow["jobs"]["try"]["steps"]]
    tried = steps.index("python -I tests/try_installed.py")
    assert steps[tried - 1].endswith('install "$(echo dist/*.whl)[flows]"')
