"""What is in deploy/: held against the tools, or the schemas, of those that would read it."""

import re
import shutil
import ssl
import subprocess
import sys
import tomllib
from contextlib import suppress
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

import httpx
import jsonschema
import kubernetes_validate
import pytest
import yaml
from daskparts import needs, process, ran
from serving import free_port
from waiting import wait

from flows.compute.places import read_cluster

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "compose/compose.yaml"
# Of the schemas that are held against the manifests.
KUBERNETES = "1.32"


def composed(**environment):
    return ran(needs("docker-compose"), "--file", COMPOSE, "config", **environment)


def composed_services(**environment):
    done = composed(POSTGRES_PASSWORD="one", PREFECT_AUTH="ism:two", **environment)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout)["services"])


@pytest.fixture(scope="module")
def services():
    return composed_services()


def test_compose_has_all_parts(services):
    parts = {"postgres", "server", "worker", "scheduler", "dask-worker", "proxy"}
    assert set(services) == parts
    for name, service in services.items():
        assert re.search(r":\d+\.\d+", service["image"]), "a version, not the latest"
        assert service["healthcheck"]["test"]
        assert service["cap_drop"] == ["ALL"]
        assert service.get("user", "") != "root"
        assert service["restart"] == "unless-stopped"
        assert name == "postgres" or service["deploy"]["resources"]["limits"]["memory"]
        ports = [str(port) for port in service.get("ports", [])]
        assert name == "proxy" or all(port.startswith("127.0.0.1:") for port in ports), ports
    server = services["server"]["environment"]
    assert server["PREFECT_UI_URL"] == "http://127.0.0.1:4200"
    assert server["PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"] == "events,flow_runs"
    assert services["worker"]["environment"]["ISM_DASK_SCHEDULER"] == "tcp://scheduler:8786"


# A password that would break an address.
PASSWORD = "p@ss:w/ord %40?#"


def test_a_password_of_postgres_may_have_any_characters(by_name):
    # Compose reads `$` as a variable.
    done = composed(POSTGRES_PASSWORD=PASSWORD, PREFECT_AUTH="a:b")
    server = yaml.safe_load(done.stdout)["services"]["server"]["environment"]
    database = {name: str(value) for name, value in server.items() if "DATABASE" in name}
    pod = by_name["Deployment", "prefect-server"]["spec"]["template"]["spec"]
    given = {each["name"]: each.get("value", PASSWORD) for each in pod["containers"][0]["env"]}
    assert database.items() <= given.items()
    code = (
        "from prefect.settings import get_current_settings as now; from sqlalchemy import make_url;"
        "url = make_url(now().server.database.connection_url.get_secret_value());"
        "assert (url.host, url.username, url.database) == ('postgres', 'prefect', 'prefect');"
        "print(url.password, end='')"
    )
    done = ran(sys.executable, "-c", code, **database)
    assert (done.returncode, done.stdout) == (0, PASSWORD), done.stderr


def test_compose_has_another_address_if_there_is_one(services):
    host = "ism.example.org"
    other = composed_services(PUBLIC_HOST=host, PUBLIC_URL=f"https://{host}")
    for found, name, url in (
        (services, "localhost", "http://127.0.0.1:4200"),
        (other, host, f"https://{host}"),
    ):
        assert found["server"]["environment"]["PREFECT_SERVER_UI_API_URL"] == f"{url}/api"
        assert found["server"]["environment"]["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == url
        assert found["proxy"]["environment"]["PUBLIC_HOST"] == name


def test_the_proxy_serves_prefect_over_tls(tmp_path):
    caddy, name = needs("caddy"), "ism.example.org"
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
    made = ran("openssl", "req", *kind, *subject, "-keyout", key, "-out", certificate)
    assert made.returncode == 0, made.stderr
    (tmp_path / "index.html").write_text("Prefect's page")
    server, front = free_port(), free_port()
    text = (DEPLOY / "compose/Caddyfile").read_text()
    for there, here in (
        ("/certificates/tls.crt", str(certificate)),
        ("/certificates/tls.key", str(key)),
        ("server:4200", f"127.0.0.1:{server}"),
        ("}:4443 {", f"}}:{front} {{"),
    ):
        assert there in text, there
        text = text.replace(there, here)
    (tmp_path / "Caddyfile").write_text(text)
    trusted = ssl.create_default_context(cafile=str(certificate))
    own = {"PUBLIC_HOST": name, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    page = ("-m", "http.server", server, "--bind", "127.0.0.1", "--directory", tmp_path)
    with (
        process(sys.executable, *page),
        process(caddy, "run", "--config", tmp_path / "Caddyfile", "--adapter", "caddyfile", **own),
        httpx.Client(verify=trusted, timeout=60) as client,
    ):

        def answer():
            given = {"headers": {"Host": f"{name}:{front}"}, "extensions": {"sni_hostname": name}}
            with suppress(httpx.TransportError):
                return client.get(f"https://127.0.0.1:{front}/", **given).text
            return ""

        wait(lambda: answer() == "Prefect's page")


def test_compose_wants_secrets():
    done = composed(POSTGRES_PASSWORD="", PREFECT_AUTH="")
    assert done.returncode != 0
    assert "copy example.env to .env and fill it in" in done.stderr
    required = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    assert required == {"POSTGRES_PASSWORD", "PREFECT_AUTH"}
    given = re.findall(r"^(\w+)=$", (DEPLOY / "compose/example.env").read_text(), re.MULTILINE)
    assert set(given) == required


def test_the_image_is_made_of_what_there_is():
    lines = (DEPLOY / "compose/Dockerfile").read_text().splitlines()
    extras = re.findall(r"--extra (\w+)", "\n".join(lines))
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    # It reads tables in all places.
    assert {"s3", "gcs"} <= set(extras) <= set(project["optional-dependencies"])
    ignored = (DEPLOY / "compose/Dockerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    sources = [word for words in copies if not words[0].startswith("--from") for word in words]
    assert len(sources) == 9
    for source in sources:
        assert (DEPLOY.parent / source).exists() or source == "deploy/prefect.yaml"
        assert any(fnmatch(source, pattern) for pattern in kept), source
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users == ["1000:1000"]
    build, image = (line for line in lines if line.startswith("FROM"))
    assert re.fullmatch(r"FROM python:3\.11\.\d+-slim-bookworm", image)
    assert build == f"{image} AS wheel"


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    kubectl = needs("kubectl")
    folder = tmp_path_factory.mktemp("kubernetes") / "deploy"
    shutil.copytree(DEPLOY / "kubernetes", folder)
    shutil.copy(folder / "secrets.env.example", folder / "secrets.env")
    return list(yaml.safe_load_all(ran(kubectl, "kustomize", folder).stdout))


@pytest.fixture(scope="module")
def by_name(manifests):
    """Return manifests by kind and name, without the digests in names."""
    text = yaml.safe_dump_all(manifests)
    text = re.sub(r"\b(prefect|public)-[0-9a-z]{10}$", r"\1", text, flags=re.MULTILINE)
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def test_manifests_keep_to_their_schemas(manifests):
    (cluster,) = [each for each in manifests if each["kind"] == "DaskCluster"]
    parts = {part: cluster["spec"][part] for part in ("scheduler", "worker")}
    specs = [("Pod", part["spec"]) for part in parts.values()]
    specs.append(("Service", parts["scheduler"]["service"]))
    of_dask = {"apiVersion": "v1", "metadata": {"name": "dask"}}
    own = [each for each in manifests if each is not cluster]
    for each in [*own, *({**of_dask, "kind": kind, "spec": spec} for kind, spec in specs)]:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    odd = {**own[0], "metdata": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(odd, KUBERNETES, strict=True)
    # The definition that comes with the operator.
    package = files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator"
    definition = yaml.safe_load((package / "crds/daskcluster.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    jsonschema.validate(cluster["spec"], schema)
    # A server would drop fields of other names.
    assert cluster["spec"].keys() <= schema["properties"].keys()
    for name, part in parts.items():
        assert part.keys() <= schema["properties"][name]["properties"].keys()


def test_no_pod_has_more_than_it_needs(manifests):
    specs = [each["spec"] for each in manifests if "spec" in each]
    pods = [spec["template"]["spec"] for spec in specs if "template" in spec]
    (cluster,) = [spec for spec in specs if "scheduler" in spec]
    pods += [cluster["scheduler"]["spec"], cluster["worker"]["spec"]]
    assert len(pods) == 5
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in pod.get("volumes", []):
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["livenessProbe"]
            assert re.search(r":\d+\.\d+", container["image"])
    assert {each["metadata"].get("namespace", "ism-dask") for each in manifests} == {"ism-dask"}


def test_the_ingress_leads_to_services_that_policies_let_it_reach(by_name):
    public = by_name["ConfigMap", "public"]["data"]
    ingress = by_name["Ingress", "pages"]["spec"]
    (rule,), (path,) = ingress["rules"], ingress["rules"][0]["http"]["paths"]
    assert public["PUBLIC_URL"] == f"https://{rule['host']}"
    assert ingress["tls"] == [{"hosts": [public["PUBLIC_HOST"]], "secretName": "pages-tls"}]
    backend = path["backend"]["service"]
    service = by_name["Service", backend["name"]]["spec"]
    policy = by_name["NetworkPolicy", "ingress-controller"]["spec"]
    pods = by_name["Deployment", backend["name"]]["spec"]["template"]
    (port,) = pods["spec"]["containers"][0]["ports"]
    assert backend["port"]["name"] in {each["name"] for each in service["ports"]}
    assert service["selector"].items() <= pods["metadata"]["labels"].items()
    assert service["selector"] == policy["podSelector"]["matchLabels"]
    assert {"port": port["name"]} in policy["ingress"][0]["ports"]


def verified(file, home):
    """Return what systemd has against a unit of a user."""
    folders = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    done = ran(needs("systemd-analyze"), "--user", "verify", file, **folders)
    return done.stderr + ("" if done.returncode == 0 else "failed")


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    unit = DEPLOY / "systemd/ism-dask.service"
    assert "ism-dask is not executable" in verified(unit, tmp_path)
    command = tmp_path / ".local/bin/ism-dask"
    command.parent.mkdir(parents=True)
    command.symlink_to(sys.executable)
    assert verified(unit, tmp_path) == ""
    odd = tmp_path / "odd.service"
    odd.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=gently"))
    assert "gently" in verified(odd, tmp_path)


def test_the_jobs_of_a_cluster_file(tmp_path):
    text = (DEPLOY / "slurm/cluster.toml").read_text()
    file = tmp_path / "cluster.toml"
    # An interface and a folder that this machine has.
    file.write_text(text.replace('"ib0"', '"lo"').replace("/shared/me", str(tmp_path)))
    (tmp_path / "ism-dask").mkdir()
    with read_cluster(file).made() as cluster:
        script = cluster.job_script()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    job = {"#SBATCH -p compute", "#SBATCH -A project", "#SBATCH --mem=60G", "module purge"}
    assert job <= set(script.splitlines())
    assert "--nthreads 4 --memory-limit 14.90GiB --nworkers 4" in script
    assert "--no-dashboard --dashboard-address 127.0.0.1:0" in script
    assert "export DASK_TEMPORARY_DIRECTORY=$(mktemp -d)" in script  # ours stays
    assert "--protocol tls://" in script
