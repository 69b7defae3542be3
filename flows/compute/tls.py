"""The TLS certificates with which clients, scheduler and workers connect to each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.services.certificates import Certificates
from flows.settings.toml_tables import RelativePath
from storage.atomic import explain_os_errors


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files such as `deploy/tls/make-certificates` writes.

    Attributes
    ----------
    ca_file : Path
        Certificate of the authority to trust.
    cert, key : Path
        Our own certificate, and its private key.
    """

    ca_file: RelativePath
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


@contextmanager
def temporary_tls(folder: Path) -> Iterator[Tls]:
    """Make temporary certificates in files below `folder`, and remove them with the block."""
    with ExitStack() as stack:
        with explain_os_errors(folder):
            temporary = stack.enter_context(TemporaryDirectory(prefix=".tls-", dir=folder))
            certificates = Certificates(Path(temporary, "made"))
            certificates.make()
        yield tls_files(certificates)


def tls_files(certificates: Certificates) -> Tls:
    """Return the paths of certificates that we made; raise ValueError if a file is missing."""
    return Tls(certificates.ca_file, certificates.cert, certificates.key)
