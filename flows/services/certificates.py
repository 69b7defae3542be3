"""Certificates that are made here, and are worth nothing when what they were made for has ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from flows.errors import FlowError
from flows.services.records import PRIVATE, services_folder


@dataclass(frozen=True)
class Certificates:
    """One certificate for scheduler, workers and clients, which trust it and no other.

    Attributes
    ----------
    folder : Path
        Where its files are, for their owner alone.
    """

    folder: Path

    @property
    def ca_file(self) -> Path:
        """What is trusted."""
        return self.folder / "ca.pem"

    @property
    def cert(self) -> Path:
        """What is shown."""
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        """The private key of `cert`."""
        return self.folder / "key.pem"

    def make(self) -> None:
        """Make the folder, with a new certificate, in place of an earlier one."""
        made = temporary_security()
        self.remove()
        self.folder.mkdir(mode=PRIVATE, parents=True)
        texts = {
            self.ca_file: made.tls_ca_file,
            self.cert: made.tls_worker_cert,
            self.key: made.tls_worker_key,
        }
        for path, text in texts.items():
            path.touch(mode=0o600)
            path.write_text(text, encoding="ascii")

    def remove(self) -> None:
        """Remove the folder."""
        rmtree(self.folder, ignore_errors=True)

    def arguments(self) -> list[str]:
        """Return what Dask's commands are told to encrypt with them."""
        files = {"ca-file": self.ca_file, "cert": self.cert, "key": self.key}
        named = [f"--tls-{name}={path}" for name, path in files.items()]
        return ["--protocol=tls", *named]


def own_certificates() -> Certificates:
    """Return those of the Dask cluster of this machine, whether or not they are there."""
    return Certificates(services_folder() / "tls")


def temporary_security() -> Any:
    """Return new certificates as Dask has them, in memory."""
    from distributed import Security  # noqa: PLC0415

    try:
        return Security.temporary()
    except ImportError as error:
        raise FlowError(
            "certificates cannot be made without the package cryptography; install it with "
            "`pip install 'ism-dask[tls]'`"
        ) from error
