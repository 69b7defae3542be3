"""Prefect flows and the command line."""

from ism_dask_command import check_packages

check_packages()
