"""Compose, systemd and the release workflow: other projects' checks, and words that are ours."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from lightgate.cli.main import cli
from lightgate.cli.main import main as run_main
from lightgate.config.load import parse_config

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
PROGRAM = "/opt/lightgate/bin/lightgate"


def known(words: list[str]) -> None:
    """Every verb and every option of a command line is one of ours."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    options = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= options, words


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def test_the_compose_file_has_the_form_of_one(tool: Callable[..., str], tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    assert "ok" in tool(*check, str(COMPOSE))
    worse = compose()
    worse["services"]["gateway"]["prots"] = []
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(worse))
    assert "prots" in tool(*check, str(tmp_path / "compose.yaml"), fails=True)


def test_what_the_compose_file_names_is_there() -> None:
    told = compose()
    services = told["services"]
    for kind in ("configs", "secrets"):
        for one in told[kind].values():
            assert "file" not in one or (COMPOSE.parent / one["file"]).exists(), one
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for network in service.get("networks", ()):
            assert network in told["networks"]
        for one in service.get("configs", ()):
            assert one["source"] in told["configs"]
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in told["volumes"] or (COMPOSE.parent / source).exists(), volume
        assert ":" in service["image"]
    dockerfile = services["gateway"]["build"]["dockerfile"]
    assert (COMPOSE.parent / services["gateway"]["build"]["context"] / dockerfile).exists()
    known(list(services["first-key"]["command"]))
    known(["up", *(word for word in services["gateway"].get("command", ())[1:])])


def test_no_secret_of_the_compose_file_has_a_default() -> None:
    needed = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    assert len(re.findall(r"\$\{", COMPOSE.read_text())) == len(
        re.findall(r"\$\{\w+:\?", COMPOSE.read_text())
    )
    example = (COMPOSE.parent / "example.env").read_text()
    assert set(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == needed
    for name, service in compose()["services"].items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name


def test_the_configuration_of_the_compose_file_names_its_services() -> None:
    text = (COMPOSE.parent / "lightgate.toml").read_text()
    hosts = set(re.findall(r"://(?:\w+@)?(\w+)", text))
    assert hosts == {"postgres", "valkey"}
    assert hosts <= compose()["services"].keys()
    stores = re.compile(r"^url = .*$", re.MULTILINE)
    parse_config(stores.sub("", text))  # every other key; the stores have tests of their own


def test_prometheus_of_the_compose_file_knows_the_gateway(tmp_path: Path) -> None:
    told = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())
    (job,) = told["scrape_configs"]
    assert job["job_name"] == "lightgate"  # that the alerts and the dashboard ask for
    assert job["static_configs"] == [{"targets": ["gateway:8081"]}]
    assert job["authorization"]["credentials_file"] == "/run/secrets/console"
    program = shutil.which("promtool") or str(ROOT / ".debian" / "usr" / "bin" / "promtool")
    if Path(program).exists():
        shutil.copy(DEPLOY / "prometheus" / "alerts.yml", tmp_path)
        (tmp_path / "prometheus.yml").write_text((COMPOSE.parent / "prometheus.yml").read_text())
        command = [program, "check", "config", "--syntax-only", "prometheus.yml"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)


def test_grafana_finds_its_dashboard_and_its_source() -> None:
    source = yaml.safe_load((COMPOSE.parent / "grafana" / "datasource.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    places = yaml.safe_load((COMPOSE.parent / "grafana" / "dashboards.yaml").read_text())
    folder = places["providers"][0]["options"]["path"]
    targets = [one["target"] for one in compose()["services"]["grafana"]["configs"]]
    assert f"{folder}/lightgate.json" in targets


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_units_start_and_reload_what_there_is(unit: Path) -> None:
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    read.read(unit)
    service = read["Service"]
    for name in ("ExecStart", "ExecReload"):
        if name in service:
            program, *words = shlex.split(service[name])
            assert program == PROGRAM
            known(words)
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["User"] == "lightgate"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("There is no systemd here.")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    told = verified(copy)
    assert told == ""
    copy.write_text(copy.read_text().replace("ProtectHome=yes", "ProtectHom=yes"))
    assert "ProtectHom" in verified(copy)


def verified(unit: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)


def test_the_gateway_is_not_exposed() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("There is no systemd here.")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20",
         DEPLOY / "systemd" / "lightgate.service"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:]  # 2.0 of 10 at the most


def test_the_workflow_has_the_form_of_one_and_no_known_hole(tool: Callable[..., str]) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.github-workflows")
    assert "ok" in tool(*check, str(RELEASE))
    tool("zizmor", "--offline", "--no-progress", "--quiet", str(RELEASE))
    for job in yaml.safe_load(RELEASE.read_text())["jobs"].values():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))


def test_the_workflow_asks_the_program_what_it_can_answer() -> None:
    lines = re.findall(r"^\s+lightgate (.*)$", RELEASE.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        known(shlex.split(line))
    assert run_main(["version", "--json"]) == 0


def test_nginx_takes_its_configuration(tmp_path: Path, missing: Callable[[str], None]) -> None:
    own = ROOT / ".debian" / "usr" / "sbin"  # where `make test` puts it
    program = shutil.which("nginx", path=f"{own}:/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        missing("nginx is not installed: `make test` fetches it where apt-get is there")
    text = (DEPLOY / "nginx" / "lightgate.conf").read_text().replace("listen 80;", "listen 8080;")
    assert "non_idempotent" not in re.sub(r"#.*", "", text)  # nothing is paid twice
    (tmp_path / "lightgate.conf").write_text(text)
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = f"pid {tmp_path}/pid; error_log stderr; events {{}}"
    whole += f" http {{ access_log off; {places} include {tmp_path}/lightgate.conf; }}"
    (tmp_path / "nginx.conf").write_text(whole)
    done = subprocess.run(
        [str(program), "-t", "-q", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", "stderr"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
