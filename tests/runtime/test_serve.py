"""``tenantzone-runtime serve``: what it adds to vLLM, and what it refuses."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tenantzone_runtime.commands import serve
from tenantzone_runtime.commands.serve import with_flags
from tenantzone_runtime.logs import JSON_CONFIG
from tenantzone_runtime.unsupported import check
from tenantzone_runtime.usage import UsageError

OURS = [
    "--scheduler-cls",
    "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware",
    "tenantzone_runtime.frontend.middleware.TenantMiddleware",
]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenantzone_runtime", "serve", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.fixture
def executed(monkeypatch):
    """What the process would have become: program, arguments, environment."""
    seen = []
    monkeypatch.setattr(os, "execve", lambda *what: seen.append(what))
    return seen


def test_vllms_arguments_pass_unchanged_and_in_order(executed):
    given = [
        "model",
        "--max-model-len",
        "512",
        "-tp=2",
        "--override.a.b",
        "1",
        "--tenant-keys",
        "keys",
        "--enforce-eager",
    ]
    serve.main(given)
    ((program, command, _),) = executed
    assert program == sys.executable
    assert command[:4] == [sys.executable, "-P", "-m", "tenantzone_runtime.engine.launch"]
    left = [argument for argument in given if argument not in ("--tenant-keys", "keys")]
    assert command[4:] == [*left, *OURS]


def test_our_arguments_become_the_environment(executed, tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER", "kept")
    serve.main(
        [
            "model",
            f"--zones-config={tmp_path}",
            "--tenant-keys",
            "keys",
            "--admin-host",
            "127.0.0.1",
            "--admin-port",
            "0",
            "--max-auto-registered-series=20",
            "--metrics-level=detailed",
            "--signed-config",
        ]
    )
    environment = executed[0][2]
    assert environment["TENANTZONE_CONFIG_DIR"] == str(tmp_path)
    assert environment["TENANTZONE_KEYS_DIR"] == str(Path("keys").absolute())
    assert environment["TENANTZONE_ADMIN_HOST"] == "127.0.0.1"
    assert environment["TENANTZONE_ADMIN_PORT"] == "0"
    assert environment["TENANTZONE_MAX_AUTO_REGISTERED_SERIES"] == "20"
    assert environment["TENANTZONE_METRICS_LEVEL"] == "detailed"
    assert environment["TENANTZONE_SIGNED_CONFIG"] == "1"
    assert environment["OTHER"] == "kept"


def test_what_is_not_given_is_left_to_the_environment(executed, monkeypatch):
    monkeypatch.setenv("TENANTZONE_ADMIN_PORT", "9000")
    serve.main(["model"])
    assert executed[0][2]["TENANTZONE_ADMIN_PORT"] == "9000"


def test_a_users_middleware_stays_and_ours_is_around_it():
    assert with_flags(["model", "--middleware", "theirs.Tracing"]) == ["model", "--middleware", "theirs.Tracing", *OURS]


def test_our_flags_are_not_given_twice():
    assert with_flags(["model", *OURS]) == ["model", *OURS]
    assert with_flags(["model", f"--scheduler_cls={OURS[1]}"]) == ["model", f"--scheduler_cls={OURS[1]}", *OURS[2:]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scheduler-cls", "theirs.Scheduler"],
        ["--scheduler_cls=theirs.Scheduler"],
        ["--grpc"],
        ["--grpc-port", "5000"],
        ["--grpc_port=5000"],
        ["--tokens-only"],
        ["--headless"],
        ["--api-key", "secret"],
        ["--data-parallel-size", "2"],
        ["-dp", "2"],
        ["--kv-transfer-config", "{}"],
        ["--kv-transfer-config.kv_connector", "x"],
        ["--no-async-scheduling"],
    ],
    ids=" ".join,
)
def test_what_does_not_go_with_zones_is_refused_and_named(arguments):
    name = arguments[0].partition("=")[0].partition(".")[0].replace("_", "-")
    with pytest.raises(UsageError, match=f"^{name} can't be used: ") as refused:
        check(["model", *arguments, "--port", "1"], {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["model"],
        ["model", "--data-parallel-size", "1", "-pp", "2"],
        ["model", "--scheduler-cls", OURS[1]],
        ["model", "--async-scheduling", "--enable-scale-out"],
        ["--grpcish"],
    ],
    ids=" ".join,
)
def test_the_rest_is_vllms_own_business(arguments):
    check(arguments, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_USE_RUST_FRONTEND", "1"),
        ("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "1"),
        ("VLLM_API_KEY", "secret"),
        ("VLLM_PLUGINS", "lora,other"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True"),
    ],
)
def test_a_variable_that_does_not_go_with_zones_is_refused_and_named(name, value):
    with pytest.raises(UsageError, match=name) as refused:
        check(["model"], {name: value})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_USE_RUST_FRONTEND", "0"),
        ("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "0"),
        ("VLLM_API_KEY", ""),
        ("VLLM_PLUGINS", "other,tenantzone"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "false"),
    ],
)
def test_a_variable_that_does_is_not(name, value):
    check(["model"], {name: value})


def test_show_flags_prints_what_a_shell_can_insert():
    shown = run("--show-flags")
    assert shown.returncode == 0
    assert shown.stdout.split() == OURS
    assert shown.stderr == ""


def test_show_flags_prints_what_turns_tiers_on(tmp_path):
    shown = run("--show-flags", "--cpu-tier", "2GiB", "--disk-tier", str(tmp_path), "--disk-tier-size", "9GiB")
    *flags, value = shlex.split(shown.stdout)
    assert flags == [*OURS, "--kv-transfer-config"]
    assert json.loads(value)["kv_connector_extra_config"] == {
        "spec_name": "ZoneOffloadingSpec",
        "spec_module_path": "tenantzone_runtime.engine.tiers.offloading_spec",
        "cpu_bytes_to_use": 2 * 2**30,
        "disk_folder": str(tmp_path),
        "disk_bytes": 9 * 2**30,
    }


def test_show_flags_prints_what_has_engines_share_storages(tmp_path):
    shown = run(
        *("--show-flags", "--cpu-tier", "2GiB"),
        *("--manager-url", "http://manager:9470", "--manager-token-file", str(tmp_path / "token")),
        *("--manager-budget", "0.5"),
    )
    extra = json.loads(shlex.split(shown.stdout)[-1])["kv_connector_extra_config"]
    assert (extra["manager_url"], extra["manager_token_file"]) == ("http://manager:9470", str(tmp_path / "token"))
    assert extra["manager_budget_seconds"] == 0.5


def test_show_flags_prints_whom_engines_believe_and_what_they_show(tmp_path):
    files = {name: str(tmp_path / name) for name in ("ca", "client-cert", "client-key")}
    flags = [argument for name, path in files.items() for argument in (f"--manager-{name}-file", path)]
    shown = run("--show-flags", "--cpu-tier", "2GiB", "--manager-url", "https://manager:9470", *flags)
    extra = json.loads(shlex.split(shown.stdout)[-1])["kv_connector_extra_config"]
    assert {name: extra[f"manager_{name.replace('-', '_')}_file"] for name in files} == files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--disk-tier", "/data"], "--disk-tier needs --cpu-tier"),
        (["--manager-url", "http://m"], "--manager-url needs --cpu-tier"),
        (["--manager-budget", "1"], "--manager-url needs --cpu-tier"),
        (["--cpu-tier", "1GiB", "--manager-budget", "1"], "--manager-budget needs --manager-url"),
        (["--cpu-tier", "1GiB", "--manager-url", "http://m", "--manager-budget", "9"], "--manager-budget must be"),
        (["--cpu-tier", "1GiB", "--manager-url", "m:9470"], "'m:9470' is not a valid URL of a KV-cache manager"),
        (["--cpu-tier", "1GiB", "--manager-token-file", "t"], "--manager-token-file needs --manager-url"),
        (
            ["--cpu-tier", "1GiB", "--manager-url", "http://m", "--manager-token-file", "/"],
            "/ is a folder; name the file",
        ),
        (["--manager-ca-file", "ca"], "--manager-url needs --cpu-tier"),
        (["--cpu-tier", "1GiB", "--manager-ca-file", "ca"], "--manager-ca-file needs --manager-url"),
        (
            ["--cpu-tier", "1GiB", "--manager-url", "http://m", "--manager-ca-file", "ca"],
            "TLS files require an https:// URL of the manager, not http://m",
        ),
        (
            ["--cpu-tier", "1GiB", "--manager-url", "https://m", "--manager-client-cert-file", "cert"],
            "a certificate and its key must be given together",
        ),
        (["--cpu-tier", "1GiB", "--disk-tier", "/data"], "--disk-tier and --disk-tier-size must be given together"),
        (["--cpu-tier", "1GiB", "--kv-transfer-config", "{}"], "--cpu-tier and --kv-transfer-config can't be used"),
        (["--cpu-tier", "1GB"], "'1GB' is not a size; write it like 64GiB"),
        (["--cpu-tier", "9999TiB"], "the CPU memory tier takes 10484711424 MiB of /dev/shm"),
    ],
)
def test_tiers_that_can_not_be_are_refused_at_once(arguments, message):
    refused = run("model", *arguments)
    assert refused.returncode != 0
    assert message in refused.stderr


def test_show_flags_names_the_environment_where_it_is_not_the_default(tmp_path):
    shown = run("--show-flags", "--zones-config", str(tmp_path), "--admin-port", "9464", "--signed-config")
    assert shown.stdout.split() == OURS
    assert f"TENANTZONE_CONFIG_DIR={tmp_path}" in shown.stderr
    assert "TENANTZONE_SIGNED_CONFIG=1" in shown.stderr
    assert "TENANTZONE_ADMIN_PORT" not in shown.stderr


def test_log_format_json_makes_vllm_read_our_configuration(executed, capsys):
    serve.main(["model", "--log-format", "json", "--log-level", "debug"])
    ((_, command, environment),) = executed
    assert environment["VLLM_LOGGING_CONFIG_PATH"] == str(JSON_CONFIG)
    assert environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert "--no-use-tqdm-on-load" in command
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"].startswith("vllm serve model --log-level debug")


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--log-config-file", "mine.json"], {}),
        (["--logging-config.formatter", "json"], {}),
        ([], {"VLLM_LOGGING_CONFIG_PATH": "mine.json"}),
        ([], {"VLLM_CONFIGURE_LOGGING": "0"}),
    ],
)
def test_log_format_json_refuses_what_says_otherwise_how_lines_look(arguments, variables):
    refused = run("model", "--log-format", "json", *arguments, **variables)
    assert refused.returncode == 1
    name = [*arguments, *variables][0].partition(".")[0]
    assert f"--log-format json and {name} can't be used together" in refused.stderr


def test_show_flags_names_what_makes_lines_json():
    shown = run("--show-flags", "--log-format", "json")
    assert f"VLLM_LOGGING_CONFIG_PATH={JSON_CONFIG}" in shown.stderr


def test_a_refusal_is_one_line_without_a_traceback():
    refused = run("model", "--grpc")
    assert refused.returncode == 1
    assert refused.stderr.startswith("tenantzone-runtime serve: --grpc can't be used: ")
    assert refused.stderr.count("\n") == 1


def test_without_vllm_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"tenantzone\[gpu\].*tenantzone\[cpu\]"):
        serve.main(["model"])


def test_a_file_where_a_folder_is_needed_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"--zones-config .* is not a folder"):
        serve.main(["model", "--zones-config", str(tmp_path / "config.json")])


def test_a_port_that_is_none_is_refused():
    with pytest.raises(SystemExit, match="--admin-port 70000 is not a port"):
        serve.main(["model", "--admin-port", "70000"])


def test_help_is_ours_and_vllms_with_a_section(executed, capsys):
    serve.main(["--help"])
    assert "--zones-config DIR" in capsys.readouterr().out
    assert executed == []
    serve.main(["--help=all"])
    assert "--help=all" in executed[0][1]


def test_a_negative_number_of_series_is_refused():
    with pytest.raises(SystemExit, match="--max-auto-registered-series must not be negative"):
        serve.main(["model", "--max-auto-registered-series=-1"])


def test_an_unknown_level_of_metrics_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        serve.main(["model", "--metrics-level=everything"])
    assert "basic" in capsys.readouterr().err
