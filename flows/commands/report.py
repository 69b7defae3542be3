"""Write the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.console import Output

EXAMPLE = "Example: ism-dask report wine-gaussian-q2 -o wine.html --open"
HIDDEN = False


def run(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file. Default: in the folder of the run."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    output: Output,
) -> None:
    """Write a report of a run: one HTML page with its figures, which needs nothing but itself."""
    from flows.work.runs import write_report  # noqa: PLC0415

    path = write_report(name, out)
    output.say(str(path))
    if show:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(path.resolve().as_uri()):
            output.say("no browser was found; open the file above in one")
    output.finish({"command": "report", "run": name, "path": str(path)})
