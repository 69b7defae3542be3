"""TLS certificates of Dask clusters: those of users, and those that we make ourselves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from shutil import rmtree
from typing import Any

from flows.errors import FlowError
from flows.services.service import services_folder
from flows.settings.toml_tables import RelativePath
from storage.atomic import make_folder


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files such as `deploy/tls/make-certificates` writes."""

    ca_file: RelativePath  # certificate of the authority to trust
    cert: RelativePath
    key: RelativePath

    def __post_init__(self) -> None:
        for each in fields(self):
            path = getattr(self, each.name)
            if not path.is_file():
                raise ValueError(f"{each.name}: there is no file {path}")

    def security(self) -> Any:
        """Return a `distributed.Security` with the same certificate for every role."""
        from distributed import Security  # noqa: PLC0415

        roles = ("client", "scheduler", "worker")
        keys = {f"tls_{role}_key": str(self.key) for role in roles}
        certificates = {f"tls_{role}_cert": str(self.cert) for role in roles}
        return Security(
            require_encryption=True, tls_ca_file=str(self.ca_file), **keys, **certificates
        )


def make_certificates(folder: Path) -> Tls:
    """Write a new certificate, which trusts only itself, to a folder that its owner may read."""
    security = temporary_security()
    rmtree(folder, ignore_errors=True)
    make_folder(folder, private=True)
    texts = {
        "ca": security.tls_ca_file,
        "cert": security.tls_worker_cert,
        "key": security.tls_worker_key,
    }
    for name, text in texts.items():
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
    return certificates_in(folder)


def certificates_in(folder: Path) -> Tls:
    """Return the files of `make_certificates`; raise ValueError if one is missing."""
    return Tls(*(folder / f"{name}.pem" for name in ("ca", "cert", "key")))


def certificates_folder() -> Path:
    """Return the folder of the certificates for the Dask services of this machine."""
    return services_folder() / "tls"


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
