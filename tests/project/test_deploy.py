"""`deploy/`: what its files name is there, judges that others wrote accept them, and what they describe starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.dry_build import PLACES, DryBuild, Step, steps
from tests.faces import speak
from tests.fail_closed.page import READY, readiness
from tests.homes import PATIENCE_S, ROOT, TOOLGATE, Home, Server, first_line, make_home
from tests.packs.consensus.servers import make_arbiter
from tests.powers.limits.server import Redis
from tests.powers.sql.postgres import shared_postgres
from tests.servers.tls.certificates import Pair
from tests.waiting import until
from toolgate.cli.main import main
from toolgate.config import OTHER_VARIABLES, load_settings
from toolgate.servers.lifecycle import LAST_RESORT_S
from toolgate.settings import SPECS, ServerSettings

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\bTOOLGATE_[A-Z0-9_]+")
IMAGE = re.compile(r"(?:[a-z0-9]+/)?[a-z0-9]+(?::[0-9.a-z-]+)?")
DRAIN_S = ServerSettings().drain_seconds + LAST_RESORT_S


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def manifests() -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all((DEPLOY / "kubernetes" / "toolgate.yaml").read_text())}


def pod() -> Any:
    return manifests()["StatefulSet"]["spec"]["template"]["spec"]


def unit() -> dict[str, str]:
    lines = (line.partition("=") for line in (DEPLOY / "toolgate.service").read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in lines if not name.startswith("#")}


def test_every_variable_that_is_named_is_one_of_ours() -> None:
    known = {spec.variable for spec in SPECS} | set(OTHER_VARIABLES)
    named = {
        name
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in VARIABLE.findall(path.read_text())
        if not name.startswith(("TOOLGATE_STORES_", "TOOLGATE_PACKS_"))
    }
    assert named
    assert {name for name in named if name.removesuffix("_FILE") not in known} == set()


def test_images_are_named_without_a_registry() -> None:
    images = [service["image"] for service in compose()["services"].values()]
    images += [container["image"] for container in (*pod()["containers"], *pod()["initContainers"])]
    images += [step.text.split()[0] for step in steps((DEPLOY / "Containerfile").read_text()) if step.word == "FROM"]
    assert len(images) > 5
    assert [image for image in images if not IMAGE.fullmatch(image)] == []


def test_ports_probes_and_times_are_those_of_the_server() -> None:
    found = {step.word: step.text for step in steps((DEPLOY / "Containerfile").read_text())}
    assert found["EXPOSE"] == str(ServerSettings().port)
    assert found["USER"] == "10001:10001"
    assert found["STOPSIGNAL"] == "SIGTERM"
    gate, container = compose()["services"]["toolgate"], pod()["containers"][0]
    assert gate["ports"] == ["127.0.0.1:8000:8000"]
    assert container["ports"][0]["containerPort"] == ServerSettings().port
    assert {container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe")} == {"/healthz"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    hosts = next(each["value"] for each in container["env"] if each["name"] == "TOOLGATE_SERVER_ALLOWED_HOSTS")
    assert container["readinessProbe"]["httpGet"]["httpHeaders"][0]["value"] in hosts.split(",")
    for seconds in (gate["stop_grace_period"], unit()["TimeoutStopSec"], pod()["terminationGracePeriodSeconds"]):
        assert float(str(seconds).removesuffix("s")) > DRAIN_S


def test_nobody_is_root_and_nothing_but_the_home_can_be_written() -> None:
    gate, container = compose()["services"]["toolgate"], pod()["containers"][0]
    assert (gate["user"], gate["read_only"], gate["cap_drop"]) == ("10001:10001", True, ["ALL"])
    assert pod()["securityContext"]["runAsNonRoot"]
    for each in (container, pod()["initContainers"][0]):
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert (unit()["User"], unit()["ProtectSystem"], unit()["NoNewPrivileges"]) == ("toolgate", "strict", "yes")


def test_the_cluster_schema_accepts_the_manifests() -> None:
    import kubernetes_validate

    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "toolgate.yaml").read_text()):
        kubernetes_validate.validate(document, "1.31", strict=True)


@pytest.mark.guard
def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not on this machine")
    copy = tmp_path / "toolgate.service"
    copy.write_text((DEPLOY / "toolgate.service").read_text().replace("/opt/toolgate/bin/toolgate", TOOLGATE))
    done = subprocess.run([program, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    judged = subprocess.run(
        [program, "security", "--offline=true", "--threshold=20", copy], capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stdout


def test_a_dry_build_knows_every_instruction_and_every_path(tmp_path: Path) -> None:
    """`make dry-build` does them all; here those that take no time."""
    found = steps((DEPLOY / "Containerfile").read_text())
    assert {step.word for step in found} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"),
        *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    build = DryBuild(tmp_path)
    for step in found:
        absolute = re.findall(r"(?<![\w.:=])/[a-z][\w./-]*", step.text) if step.word in ("RUN", "COPY") else []
        assert [path for path in absolute if not path.startswith(PLACES)] == []
        if step.word in ("WORKDIR", "COPY") and "--from" not in step.text:
            build.do(step)
    assert (tmp_path / "build" / "src" / "toolgate" / "__init__.py").is_file()
    assert (tmp_path / "build" / "requirements" / "serve.txt").is_file()
    assert (tmp_path / "opt" / "toolgate" / "health.py").is_file()
    build.do(Step("RUN", "install -d -o 10001 -g 10001 -m 0700 /var/lib/toolgate", 1))
    assert (tmp_path / "var" / "lib" / "toolgate").stat().st_mode & 0o777 == 0o700


def health(port: int, **variables: str) -> int:
    environment = {"TOOLGATE_SERVER_PORT": str(port), **variables}
    return subprocess.run(
        [sys.executable, "-I", DEPLOY / "health.py"], env=environment, timeout=PATIENCE_S, check=False
    ).returncode


@pytest.mark.guard
def test_the_health_check_tells_a_server_from_none_with_tls_and_without(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    tls = {"TOOLGATE_SERVER_TLS_CERTIFICATE": str(pair.certificate)}
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving() as server:
        assert health(server.port) == 0
        assert health(server.port, **tls) == 1
    assert health(server.port) == 1
    with home.serving("--server-tls-certificate", str(pair.certificate), "--server-tls-key", str(pair.key)) as server:
        assert health(server.port, **tls) == 0


@pytest.mark.guard
def test_what_the_compose_file_sets_starts_with_real_engines(tmp_path: Path) -> None:
    """Its variables as they stand, but for the addresses of the engines, the port, and the broker, which is not waited for."""
    home, redis = made_home(tmp_path / "home"), Redis()
    store = tmp_path / "store_url"
    store.write_text(shared_postgres().new_database())
    variables = {name: str(value) for name, value in compose()["services"]["toolgate"]["environment"].items()}
    assert load_settings(home.path, {}, variables | dict.fromkeys(files_in(variables), str(store)))
    variables |= dict.fromkeys(files_in(variables), str(store)) | {"TOOLGATE_LIMITS_URL": redis.url}
    variables |= {"TOOLGATE_SERVER_PORT": "0", "BROKER_URL": "nats://127.0.0.1:1"}
    try:
        served_with(variables, home)
    finally:
        redis.close()


def files_in(variables: dict[str, str]) -> list[str]:
    return [name for name in variables if name.endswith("_FILE")]


def made_home(path: Path) -> Home:
    return make_arbiter(path).home


def served_with(variables: dict[str, str], home: Home) -> None:
    process = subprocess.Popen(
        [TOOLGATE, "serve", "--json"],
        env={"PATH": os.environ["PATH"], "TOOLGATE_HOME": str(home.path)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        server = Server(process, first_line(process))
        until(lambda: readiness(server) == READY, "it is ready")
        assert health(server.port) == 0
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.guard
@pytest.mark.parametrize("place", ["elsewhere", "the same place"])
def test_a_backup_of_a_running_home_is_restored_and_goes_on(place: str, tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance", "unruly"))
    with home.serving() as server:
        for number in range(20):
            assert speak.mrt(server.port, "unruly_write", {"name": f"n{number}"}, home.keys["admin"]).status == 200
        consent = {"orgId": "acme", "checkType": "status"}
        speak.mrt(server.port, "check_consent_requirements", consent, home.keys["admin"])
        backup = tmp_path / "backup"
        subprocess.run([sys.executable, DEPLOY / "backup.py", home.path, backup], check=True, timeout=PATIENCE_S)
        assert speak.mrt(server.port, "unruly_write", {"name": "later"}, home.keys["admin"]).status == 200
    target = tmp_path / "elsewhere" if place == "elsewhere" else home.path
    home.path.rename(tmp_path / "lost")
    backup.rename(target)
    restored = Home(target, home.keys)
    with restored.serving() as server:
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200
    assert main(["audit", "verify", "--home", str(target)]) == 0
    kept = [record for record in restored.calls() if record["event"] == "outcome"]
    assert len(kept) >= 20
    assert (target / "workspace" / "n19").exists()
    assert not (target / "workspace" / "later").exists()


def test_every_alarm_has_a_row_that_says_what_to_do() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    alarms = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Alarms")[2]
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `Toolgate")}
    assert alarms == rows
