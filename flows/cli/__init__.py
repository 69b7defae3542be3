"""The command line. Commands import what they need only when they run, so that `--help` is fast."""

from flows.cli.app import main

__all__ = ["main"]
