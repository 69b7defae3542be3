"""What a command does before it may import Prefect."""

from __future__ import annotations

from flows.console import Output


def with_prefect(output: Output) -> str:
    """Set Prefect's environment, see to it that a server answers, and return its API address."""
    from flows.server import ensure_server, prepare_environment, ui_address  # noqa: PLC0415

    prepare_environment(debug=output.debug)
    return ensure_server(
        lambda server: output.waiting(
            f"starting a Prefect server at {ui_address(server.api)}; it stays up for the next "
            f"run: stop it with `ism-dask server --stop` or `kill {server.pid}`"
        )
    )
