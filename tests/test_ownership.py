"""A server does not start from a home, settings, policy or keys that others can write."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.support import without_settings
from tests.homes import Home, make_home
from toolgate.cli.init.home import furnish
from toolgate.cli.main import main
from toolgate.config import load_settings
from toolgate.errors import SettingsError, StartRefused
from toolgate.ownership import TRUSTED_GROUP, TRUSTED_USER, check_owners

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home")
    (made.path / "toolgate.toml").touch()
    (made.path / "secrets").mkdir(mode=0o700, exist_ok=True)
    return made


def check(home: Home, **environ: str) -> None:
    check_owners(load_settings(home.path, {}, {}), environ)


def files_of(home: Home) -> list[Path]:
    policy = home.path / "policy"
    return [
        home.path,
        home.path / "toolgate.toml",
        policy,
        *policy.iterdir(),
        home.path / "keys",
        home.path / "secrets",
    ]


def test_f21_whatever_everyone_can_write_is_not_obeyed(home: Home) -> None:
    check(home)
    for path in files_of(home):
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | 0o002)
        with pytest.raises(StartRefused) as refused:
            check(home, **{TRUSTED_USER: str(os.geteuid()), TRUSTED_GROUP: str(path.stat().st_gid)})
        assert f"{path} can be written by everyone" in str(refused.value)
        assert f"Run: chmod go-w {path}" in str(refused.value)
        path.chmod(mode)
    check(home)


def test_f21_a_server_says_so_before_it_runs_anything(home: Home) -> None:
    ran = home.path / "ran"
    file = home.path / "toolgate.toml"
    file.write_text(file.read_text() + f'\n[ledger]\nanchor_command = ["/usr/bin/touch", "{ran}"]\n')
    file.chmod(0o666)
    with pytest.raises(StartRefused, match="can be written by everyone"):
        home.app()
    assert not ran.exists()
    assert not (home.path / "runs").exists()


@needs_root
def test_f21_a_group_is_trusted_only_by_name(home: Home) -> None:
    for path in files_of(home):
        mode = stat.S_IMODE(path.stat().st_mode)
        os.chown(path, -1, STRANGER)
        path.chmod(mode | 0o020)
        with pytest.raises(StartRefused, match=f"can be written by group {STRANGER}"):
            check(home)
        check(home, **{TRUSTED_GROUP: str(STRANGER)})
        path.chmod(mode)
        check(home)


@needs_root
def test_f21_another_owner_is_trusted_only_by_name(home: Home) -> None:
    for path in files_of(home):
        os.chown(path, STRANGER, -1)
        with pytest.raises(StartRefused, match=f"belongs to user {STRANGER}"):
            check(home)
        check(home, **{TRUSTED_USER: str(STRANGER)})
        os.chown(path, 0, -1)


@needs_root
def test_f21_the_private_group_of_the_owner_is_the_owner(home: Home) -> None:
    (home.path / "toolgate.toml").chmod(0o664)
    check(home)


def test_f21_behind_a_link_the_directory_counts_too(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = home.path / "toolgate.toml"
    (elsewhere / "real.toml").write_text(file.read_text())
    file.unlink()
    file.symlink_to(elsewhere / "real.toml")
    check(home)
    elsewhere.chmod(0o777)
    with pytest.raises(StartRefused, match="elsewhere can be written by everyone"):
        check(home)


def test_f21_what_is_mounted_read_only_cannot_be_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.path / "policy").chmod(0o1777)  # as orchestrators mount configuration
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    check(home)


@pytest.mark.parametrize("variable", [TRUSTED_USER, TRUSTED_GROUP])
def test_f21_a_name_that_nobody_has_is_a_fault(home: Home, variable: str) -> None:
    check(home, **{variable: "root"})
    with pytest.raises(SettingsError, match="there is no"):
        check(home, **{variable: "no-such-name"})


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_f21_init_makes_a_home_that_only_its_owner_can_write(
    tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "new" / "home"
    without_settings(monkeypatch)
    old = os.umask(mask)
    try:
        assert main(["init", str(place)]) == 0
    finally:
        os.umask(old)
    for path in [place, *place.rglob("*")]:
        private = path.relative_to(place).parts[:1] in (("keys",), ("secrets",), ("state",), ("runs",))
        public = path.suffix == ".pub" and path.parent.name == "secrets"
        wanted = (0o700 if private else 0o755) if path.is_dir() else (0o600 if private and not public else 0o644)
        assert stat.S_IMODE(path.stat().st_mode) == (wanted if public else wanted & ~mask | wanted & 0o700)
    check_owners(load_settings(place, {}, {}), {})


def test_f21_a_development_home_is_no_one_elses_either(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        settings = furnish(tmp_path / "dev", policy=False)
        assert os.umask(0) == 0, "the umask is given back"
    finally:
        os.umask(old)
    check_owners(settings, {})
