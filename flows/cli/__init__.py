"""The command line. What a command stands on is imported when it runs: `--help` is quick."""

from flows.cli.app import app, main

__all__ = ["app", "main"]
