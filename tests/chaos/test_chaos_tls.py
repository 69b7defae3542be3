"""Whoever has no certificate is turned away from a cluster that encrypts, which goes on."""

import contextlib
import socket
import ssl
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from daskparts import cluster_file, dask, made, options, process, scheduler, worker
from distributed import Client
from serving import ended, own_ports, start_up
from tally import few_and_many

from flows.compute.connection import quiet_logs
from flows.services.dask import Tls, certificates_folder, certificates_in


@dataclass(frozen=True)
class Target:
    """A scheduler that encrypts, with one worker."""

    where: str  # the value of `--cluster`
    port: int
    admitted: Tls  # certificates that it takes
    authority: tuple[Path, Path]  # a certificate and its key that sign for it


@pytest.fixture
def targets(serving, tmp_path, monkeypatch):
    """Keep `ism-dask up --tls`, and a cluster with the certificates of `deploy/tls`."""
    folder = tmp_path / "tls"
    assert made(folder).returncode == 0
    ports = own_ports()[2:]  # Prefect's server runs already
    with (
        ended(start_up("--tls", "--workers", 1, "--memory", "500MB", *ports)) as up,
        scheduler(tmp_path, *options(folder, "scheduler")) as address,
        worker(address, *options(folder, "worker")),
    ):
        monkeypatch.setattr("flows.compute.places.Address.wait", 60.0)
        file = cluster_file(tmp_path / "cluster.toml", address, folder, folder)
        client = Tls(folder / "ca.pem", folder / "client.pem", folder / "client-key.pem")
        own = certificates_in(certificates_folder())
        yield (
            Target("up", _port(up.answer["scheduler"]), own, (own.cert, own.key)),
            Target(str(file), _port(address), client, (client.ca_file, folder / "ca-key.pem")),
        )


@few_and_many(few=2, many=10)
def test_whoever_has_no_certificate_is_turned_away(tally, count, targets, here, tmp_path):
    row = tally("unauthenticated clients against TLS", count)

    def cost(*where):
        wanted = ("crossval", "wine", "--first", 1, "--plain", "--json")
        return here(*wanted, *where).answer["results"][0]["cost"]

    alone = cost()
    with ExitStack() as held:
        assert all(map(_serves, targets))
        for client in [*CLIENTS.values()][:count]:
            refused = [client(target, tmp_path, held) for target in targets]
            row.add(survived=all(refused), wrong=not all(map(_serves, targets)))
        costs = [cost("--cluster", each.where) for each in targets]
    row.wrong += any(each != pytest.approx(alone, rel=1e-9) for each in costs)


def _serves(target):
    """Say whether those with a certificate are served, by one worker, and nobody else is."""
    certificates = target.admitted
    assert _said(target.port, _context(certificates.cert, certificates.key))
    address = f"tls://127.0.0.1:{target.port}"
    with Client(address, security=certificates.security(), timeout=30) as client:
        client.wait_for_workers(1, timeout=120)
        return len(client.scheduler_info(n_workers=-1)["workers"]) == 1


def _of_another_authority(target, folder, held):
    others = folder / "others"
    if not others.exists():
        assert made(others).returncode == 0
    theirs = (others / "client.pem", others / "client-key.pem")
    # It trusts the scheduler, and is not trusted.
    mixed = Tls(target.admitted.ca_file, *theirs)
    joined = not _cannot_join(f"tls://127.0.0.1:{target.port}", mixed.security())
    return not joined and not _said(target.port, _context(*theirs))


def _silent(target, folder, held):
    """Connect, say nothing, and stay."""
    connection = held.enter_context(socket.create_connection(("127.0.0.1", target.port)))
    connection.settimeout(1)
    with contextlib.suppress(TimeoutError):
        return connection.recv(1024) == b""
    return True


CLIENTS = {
    "without TLS": lambda target, *_: _cannot_join(f"tcp://127.0.0.1:{target.port}", None),
    "of another authority": _of_another_authority,
    "without certificate": lambda target, *_: not _said(target.port, _context()),
    "signed by itself": lambda target, folder, _: (
        not _said(target.port, _context(*_certificate(folder)))
    ),
    "expired": lambda target, folder, _: (
        not _said(target.port, _context(*_certificate(folder, target.authority, until=-1)))
    ),
    "a browser": lambda target, *_: (
        not _said(target.port, None, b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    ),
    "garbage": lambda target, *_: not _said(target.port, None, bytes(range(256)) * 1024),
    "silent": _silent,
    "a worker without TLS": lambda target, *_: _worker_ends(f"tcp://127.0.0.1:{target.port}"),
    "a worker of another authority": lambda target, folder, _: _worker_ends(
        f"tls://127.0.0.1:{target.port}", *options(folder / "others", "worker")
    ),
}


def _cannot_join(address, security):
    try:
        with quiet_logs(), Client(address, security=security, timeout=3):
            return False
    except OSError:
        return True


def _worker_ends(address, *more):
    size = ("--nthreads", 1, "--host", "127.0.0.1", "--no-nanny", "--death-timeout", 3)
    pages = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
    with process(*dask("worker", address, *size, *pages, *more)) as started:
        try:
            return started.wait(60) is not None
        except subprocess.TimeoutExpired:
            return False


def _said(port, context, sent=b""):
    """Return what the scheduler says to a client, but for what TLS says itself."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain) if context else plain as connection,
        ):
            connection.sendall(sent)
            found = connection.recv(1024)
    except (ssl.SSLError, ConnectionError):
        return b""
    alert = context is None and found[:1] == b"\x15"
    return b"" if alert else found


def _context(*certificate):
    """Return what trusts everybody and shows a certificate, if there is one to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def _certificate(folder, authority=None, until=30):
    """Make a certificate, signed by an authority or itself; return the files of it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask-internal")])
    signing = key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority[0].read_bytes()).subject
        signing = serialization.load_pem_private_key(authority[1].read_bytes(), None)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=until))
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = folder / "made.pem", folder / "made-key.pem"
    files[0].write_bytes(made.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, *plain))
    return files


def _port(address):
    return int(address.rpartition(":")[2])
