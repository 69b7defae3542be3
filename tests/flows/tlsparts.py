"""Certificates of `deploy/tls`, and how parts of a cluster are told of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MAKE = Path(__file__).parents[2] / "deploy/tls/make-certificates"


def made(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MAKE, folder, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def options(folder: Path, role: str) -> tuple[str, ...]:
    files = {"ca-file": "ca", "cert": role, "key": f"{role}-key"}
    given = [(f"--tls-{name}", f"{folder}/{file}.pem") for name, file in files.items()]
    return ("--protocol", "tls", *(word for pair in given for word in pair))


def cluster_file(file: Path, address: str, ca: Path, own: Path) -> Path:
    file.write_text(
        f'kind = "address"\naddress = "{address}"\n[tls]\nca_file = "{ca}/ca.pem"\n'
        f'cert = "{own}/client.pem"\nkey = "{own}/client-key.pem"\n'
    )
    return file
