"""The command `ism-dask`, and the checks that what it needs is installed.

`flows` and `storage` are names that other projects have, too: whichever comes first on the path of
Python is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("flows", "storage")
# What `ism-dask[flows]` brings, and Python alone does not need.
_WORKFLOW = ("prefect", "typer", "distributed", "pyarrow")


def check_packages() -> None:
    """Raise an ImportError if a package is missing, or another project's stands in for ours."""
    missing = [name for name in _WORKFLOW if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the command line needs {', '.join(missing)}: pip install 'ism-dask[flows]' "
            "(in Python, `import ism_dask` works without)"
        )
    ours = Path(__file__).resolve().parent
    for name in _PACKAGES:
        spec = find_spec(name)
        places = (
            [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
        )
        if not any(Path(place).resolve().parent == ours for place in places):
            found = places[0] if places else "nowhere"
            raise ImportError(
                f"ism-dask needs its own package `{name}`, in {ours}, but Python finds another "
                f"one: {found}. Start where no folder or file has this name, take its folder "
                "from PYTHONPATH, or install ism-dask into an environment of its own (uv tool "
                "install ism-dask)"
            )


def main() -> None:
    """Run the command line; end with one line if its packages are not found."""
    try:
        check_packages()
    except ImportError as error:
        raise SystemExit(f"ism-dask: {error}") from None
    from flows.cli.app import main as command  # noqa: PLC0415 - only after the check

    command()
