"""Encrypted clusters, and clusters whose parts are on machines of their own."""

import json
import sys

import pytest
from daskparts import cluster_file, made, options, ran
from daskparts import scheduler as a_scheduler
from daskparts import worker as a_worker
from network import network


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "own"
    done = made(folder, "10.77.0.1", "10.77.0.2", "node.cluster")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def encrypted(certificates, tmp_path_factory):
    """Keep a scheduler and a worker that encrypt; yield the address."""
    folder = tmp_path_factory.mktemp("scheduler")
    with (
        a_scheduler(folder, *options(certificates, "scheduler")) as address,
        a_worker(address, *options(certificates, "worker")),
    ):
        yield address


def test_certificates(certificates):
    roles = ("ca", "scheduler", "worker", "client")
    assert {each.name for each in certificates.iterdir()} == {
        f"{role}{kind}.pem" for role in roles for kind in ("", "-key")
    }
    assert {(certificates / f"{role}-key.pem").stat().st_mode & 0o777 for role in roles} == {0o600}
    scheduler, client = (
        ran("openssl", "x509", "-in", certificates / f"{role}.pem", "-noout", "-text").stdout
        for role in ("scheduler", "client")
    )
    for name in ("DNS:localhost", "IP Address:127.0.0.1", "IP Address:10.77.0.1", "node.cluster"):
        assert name in scheduler
    assert "TLS Web Server Authentication" in scheduler
    assert "TLS Web Server Authentication" not in client
    assert "CA:TRUE" not in scheduler + client
    chain = [f"{certificates}/{role}.pem" for role in roles[1:]]
    authority = certificates / "ca.pem"
    assert not ran("openssl", "verify", "-x509_strict", "-CAfile", authority, *chain).returncode


def test_certificates_are_never_replaced(certificates):
    before = {each: each.read_bytes() for each in certificates.iterdir()}
    again = made(certificates)
    assert (again.returncode, again.stdout) == (1, "")
    assert "ca.pem exists; remove it, or name another folder" in again.stderr
    assert {each: each.read_bytes() for each in certificates.iterdir()} == before


def test_certificates_for_wrong_names_are_not_made(tmp_path):
    wrong = ((["a b"], {}), ([], {"DAYS": "0"}), ([], {"DAYS": "10", "CA_DAYS": "9"}))
    for arguments, environment in wrong:
        done = made(tmp_path / "new", *arguments, **environment)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert not (tmp_path / "new").exists()


def test_a_cluster_is_joined_with_its_certificates_and_no_others(
    here, encrypted, certificates, tmp_path, monkeypatch
):
    monkeypatch.setattr("flows.compute.places.Address.wait", 60.0)
    file = cluster_file(tmp_path / "tls.toml", encrypted, certificates, certificates)
    (worker,) = here("check-cluster", file, "--json").answer["workers"]
    assert worker["address"].startswith("tls://127.0.0.1:")
    command = ("fit", "wine", "--plain", "--cluster")
    said = here(*command, encrypted).failed(1)
    assert "is not joined with these certificates, or without any" in said
    said = here(*command, encrypted.replace("tls", "tcp")).failed(1)
    assert "no Dask scheduler answers" in said
    assert "it wants tls:// and certificates" in said
    others = tmp_path / "others"
    assert made(others).returncode == 0
    for authority, own in ((others, others), (certificates, others)):
        cluster_file(file, encrypted, ca=authority, own=own)
        said = here(*command, file).failed(1)
        assert "all of one authority and still valid" in said
        assert "CERTIFICATE_VERIFY_FAILED" in said or authority != own
    cluster_file(file, encrypted.replace("tls", "tcp"), certificates, certificates)
    assert "expected one that begins with tls://" in here(*command, file).failed(2)


@pytest.mark.chaos
@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_scheduler_worker_and_client_on_machines_of_their_own(
    protocol, certificates, here, tmp_path
):
    secure = protocol == "tls"
    first, second = (
        options(certificates, role) if secure else () for role in ("scheduler", "worker")
    )
    with (
        network(3) as (_, (one, two, three)),
        a_scheduler(tmp_path, *first, **one._asdict()) as address,
        a_worker(address, *second, **two._asdict()),
    ):
        assert address.startswith(f"{protocol}://10.77.0.1:")
        file = cluster_file(tmp_path / "c.toml", address, certificates, certificates)
        where = file if secure else address
        words = ("crossval", "wine", "--plain", "--json", "--first", "1")
        far = ran(*three.within, sys.executable, "-m", "flows.cli", *words, "--cluster", where)
    assert (far.returncode, far.stderr) == (0, "")
    cost, alone = (
        each["results"][0]["cost"] for each in (json.loads(far.stdout), here(*words).answer)
    )
    assert cost == pytest.approx(alone, rel=1e-9)
