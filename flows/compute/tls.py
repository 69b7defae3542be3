"""The certificates with which a client joins a scheduler, and workers each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


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
    from distributed import Security  # noqa: PLC0415

    made = Security.temporary()
    texts = {"ca_file": made.tls_ca_file, "cert": made.tls_worker_cert, "key": made.tls_worker_key}
    # For their owner alone, as the folder is that is made for them.
    with TemporaryDirectory(prefix=".tls-", dir=folder) as own:
        files = {name: Path(own, f"{name}.pem") for name in texts}
        for name, text in texts.items():
            files[name].write_text(text, encoding="ascii")
        yield Tls(**files)
