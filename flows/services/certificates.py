"""TLS certificates in files: those that a cluster file names, and those that we make ourselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from flows.errors import FlowError
from flows.services.service import services_folder
from flows.settings.toml_tables import ExistingFile
from storage.atomic import make_folder


@dataclass(frozen=True)
class Certificates:
    """The PEM files of one certificate, which scheduler, workers and clients present."""

    ca_file: ExistingFile  # the authority to trust
    cert: ExistingFile  # the certificate to present
    key: ExistingFile  # the private key of `cert`

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Return the certificates that `make` writes to this folder; they need not exist."""
        return cls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")

    @property
    def folder(self) -> Path:
        """Return the folder of the files."""
        return self.cert.parent

    def make(self) -> None:
        """Write a new certificate, which trusts only itself, to the folder in place of another."""
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

    def security(self) -> Any:
        """Return a `distributed.Security` with the same certificate for every role."""
        from distributed import Security  # noqa: PLC0415

        roles = ("client", "scheduler", "worker")
        keys = {f"tls_{role}_key": str(self.key) for role in roles}
        certificates = {f"tls_{role}_cert": str(self.cert) for role in roles}
        return Security(
            require_encryption=True, tls_ca_file=str(self.ca_file), **keys, **certificates
        )


def own_certificates() -> Certificates:
    """Return the certificates for the Dask services of this machine; they need not exist."""
    return Certificates.in_folder(services_folder() / "tls")


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
