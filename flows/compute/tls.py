"""The certificates with which a client joins a scheduler, and workers each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.services.certificates import Certificates
from storage.atomic import explain_os_errors


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files, as `deploy/tls/make-certificates` writes them.

    Attributes
    ----------
    ca_file : Path
        The authority whose certificates are trusted.
    cert, key : Path
        Our own certificate, and its private key.
    """

    ca_file: Path
    cert: Path
    key: Path

    def __post_init__(self) -> None:
        for each in fields(self):
            path = getattr(self, each.name)
            if not path.is_file():
                raise ValueError(f"{each.name}: there is no file {path}")

    def security(self) -> Any:
        """Return what Dask takes, for every role."""
        from distributed import Security  # noqa: PLC0415

        roles = ("client", "scheduler", "worker")
        keys = {f"tls_{role}_key": str(self.key) for role in roles}
        certificates = {f"tls_{role}_cert": str(self.cert) for role in roles}
        return Security(
            require_encryption=True, tls_ca_file=str(self.ca_file), **keys, **certificates
        )


@contextmanager
def passing_tls(folder: Path) -> Iterator[Tls]:
    """Yield certificates, in files below `folder`, that are gone when the block ends."""
    with ExitStack() as held:
        with explain_os_errors(folder):
            own = held.enter_context(TemporaryDirectory(prefix=".tls-", dir=folder))
            made = Certificates(Path(own, "made"))
            made.make()
        yield tls_of(made)


def tls_of(certificates: Certificates) -> Tls:
    """Return where certificates of ours are, or raise ValueError where they are not."""
    return Tls(certificates.ca_file, certificates.cert, certificates.key)
