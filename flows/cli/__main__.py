"""Run the command line by `python -m flows.cli`."""

from flows.cli.app import main

main()
