"""TLS certificates that we make ourselves, for one run or for the services of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from flows.errors import FlowError
from flows.services.service import services_folder
from storage.atomic import make_folder


@dataclass(frozen=True)
class Certificates:
    """The files of one certificate for scheduler, workers and clients, which trust only this one.

    Attributes
    ----------
    folder : Path
        Folder of the files, which only its owner may read.
    """

    folder: Path

    @property
    def ca_file(self) -> Path:
        """Return the path of the authority to trust."""
        return self.folder / "ca.pem"

    @property
    def cert(self) -> Path:
        """Return the path of the certificate to present."""
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        """Return the path of the private key of `cert`."""
        return self.folder / "key.pem"

    def make(self) -> None:
        """Write a new certificate to the folder, in place of an earlier one."""
        security = temporary_security()
        self.remove()
        make_folder(self.folder, private=True)
        texts = {
            self.ca_file: security.tls_ca_file,
            self.cert: security.tls_worker_cert,
            self.key: security.tls_worker_key,
        }
        for path, text in texts.items():
            path.touch(mode=0o600)
            path.write_text(text, encoding="ascii")

    def remove(self) -> None:
        """Remove the folder."""
        rmtree(self.folder, ignore_errors=True)

    def arguments(self) -> list[str]:
        """Return the options with which Dask's commands use TLS and these certificates."""
        files = {"ca-file": self.ca_file, "cert": self.cert, "key": self.key}
        options = [f"--tls-{name}={path}" for name, path in files.items()]
        return ["--protocol=tls", *options]


def own_certificates() -> Certificates:
    """Return the certificates for the Dask services of this machine; they need not exist."""
    return Certificates(services_folder() / "tls")


def temporary_security() -> Any:
    """Return a `distributed.Security` with new certificates, in memory only."""
    from distributed import Security  # noqa: PLC0415

    try:
        return Security.temporary()
    except ImportError as error:
        raise FlowError(
            "certificates cannot be made without the package cryptography; install it with "
            "`pip install 'ism-dask[tls]'`"
        ) from error
