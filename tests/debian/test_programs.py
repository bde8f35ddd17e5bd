"""Programs come from PATH, or else from a package; otherwise the error says what to install."""

import os
import subprocess
from pathlib import Path

import pytest

from hack.debian import DebianError, ensure
from hack.debian.programs import PROGRAMS
from hack.debian.relocation import relocated

BUILDS_A_PACKAGE = r"""#!/bin/sh
# Stands for apt-get: what it downloads is a package that is made on the spot.
[ "$1" = download ] || exit 100
mkdir -p made/DEBIAN made/usr/bin
printf 'Package: %s\nVersion: 1\nArchitecture: all\n' "$2" > made/DEBIAN/control
printf 'Maintainer: test <test@example.org>\nDescription: test\n' >> made/DEBIAN/control
home=/usr/share/prometheus/alertmanager
mkdir -p made$home
echo template > made$home/default.tmpl
for name in promtool prometheus prometheus-alertmanager; do
    printf "#!/bin/sh\n[ \$1 = --version ] || cat $home/default.tmpl\n" > made/usr/bin/$name
    chmod +x made/usr/bin/$name
done
dpkg-deb --build made "$2.deb" > /dev/null
echo "$2" >> "$APT_LOG"
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the shell's own tools and none of the tested programs; and an empty cache."""
    folder = tmp_path / "path"
    folder.mkdir()
    for tool in ("sh", "mkdir", "chmod", "dpkg", "dpkg-deb", "tar", "rm"):
        (folder / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("APT_LOG", str(tmp_path / "apt.log"))
    return folder


@pytest.mark.parametrize("name", ["prometheus", "prometheus-alertmanager", "chromium-browser"])
def test_what_is_on_path_is_used(path: Path, name: str) -> None:
    program(path / name, "#!/bin/sh\n")
    wanted = next(key for key, known in PROGRAMS.items() if name in known.names)
    assert ensure(wanted) == path / name


def test_a_package_is_unpacked_into_the_cache_once(path: Path, tmp_path: Path) -> None:
    program(path / "apt-get", BUILDS_A_PACKAGE)
    first, second = ensure("promtool"), ensure("prometheus")
    assert first.is_relative_to(tmp_path / "cache")
    assert first.parent == second.parent
    assert (tmp_path / "apt.log").read_text() == "prometheus\n"


def test_a_program_gets_the_libraries_that_its_packages_bring(path: Path, tmp_path: Path) -> None:
    brings = BUILDS_A_PACKAGE.replace(
        "for name in promtool", "mkdir -p made/usr/lib/x-linux-gnu; for name in redis-server"
    )
    program(path / "apt-get", brings.replace("cat $home/default.tmpl", r"echo \$LD_LIBRARY_PATH"))
    libraries = subprocess.check_output([ensure("redis-server"), "run"], text=True).strip()
    assert Path(libraries).is_relative_to(tmp_path / "cache")
    assert Path(libraries).name == "x-linux-gnu"
    wanted = ["redis-server", *PROGRAMS["redis-server"].dependencies]
    assert (tmp_path / "apt.log").read_text().split() == wanted


def test_a_program_that_looks_for_its_own_files_finds_them_in_the_cache(path: Path) -> None:
    program(path / "apt-get", BUILDS_A_PACKAGE)
    (path / "cat").symlink_to("/usr/bin/cat")
    for _ in range(2):
        assert subprocess.check_output([ensure("alertmanager"), "run"], text=True) == "template\n"


def test_a_program_that_runs_already_can_be_made_to_find_its_files_once_more(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/cat").read_bytes())
    with subprocess.Popen([relocated(program, tmp_path, "/usr/share/none")], stdin=subprocess.PIPE) as running:
        while Path(f"/proc/{running.pid}/comm").read_text() != "program-relativ\n":
            assert running.poll() is None
        # As seen by another process that began before the wrapper was there.
        (tmp_path / "program-here").unlink()
        assert relocated(program, tmp_path, "/usr/share/none") == tmp_path / "program-here"
        running.communicate()
    assert running.returncode == 0


def test_on_a_machine_without_apt_the_error_says_what_is_missing(path: Path) -> None:
    with pytest.raises(DebianError, match=r"(?s)^promtool is not on PATH.*apt-get.*put one of these on PATH: promtool"):
        ensure("promtool")


def test_a_failed_download_says_what_to_install(path: Path) -> None:
    program(path / "apt-get", "#!/bin/sh\necho no network >&2\nexit 100\n")
    with pytest.raises(DebianError, match=r"(?s)no network.*apt-get install --no-install-recommends prometheus\n"):
        ensure("prometheus")


def test_a_program_that_does_not_run_here_is_named(path: Path) -> None:
    program(path / "apt-get", BUILDS_A_PACKAGE.replace("[ \\$1 = --version ]", "exit 127"))
    with pytest.raises(DebianError, match=r"(?s)prometheus --version ended with exit code 127.*by hand"):
        ensure("prometheus")


def test_only_root_can_install_what_needs_libraries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path / "apt-get", "#!/bin/sh\nexit 100\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DebianError, match=r"only root.*\n.*apt-get install --no-install-recommends chromium"):
        ensure("chromium")


def test_root_installs_it_with_new_lists_if_the_old_ones_do_not_do(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""#!/bin/sh
    echo "$*" >> "$APT_LOG"
    case $1 in
        update) echo > {tmp_path}/lists ;;
        install) [ -e {tmp_path}/lists ] || exit 100
            printf '#!/bin/sh\\n' > {path}/chromium; chmod +x {path}/chromium ;;
    esac
    """
    program(path / "apt-get", script)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ensure("chromium") == path / "chromium"
    install = "install --yes --no-install-recommends chromium\n"
    assert (tmp_path / "apt.log").read_text() == f"{install}update\n{install}"


def test_root_installs_packages_whose_scripts_call_the_administrators_programs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dpkg refuses to work if they are not on PATH."""
    script = f"""#!/bin/sh
    command -v ldconfig > /dev/null || {{ echo "ldconfig not found in PATH" >&2; exit 2; }}
    printf '#!/bin/sh\\n' > {path}/chromium; chmod +x {path}/chromium
    """
    program(path / "apt-get", script)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ensure("chromium") == path / "chromium"
