"""Commands that packs bring: found by the shortest way, in their own order of who was there first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Commands, clean_environment
from tests.policy.support import install, pack_source
from toolgate.cli.commands import OWN, shipped, shipped_packs
from toolgate.errors import ExitCode
from toolgate.packs.discovery import door_of
from toolgate.settings import DEFAULT_PACKS


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / tmp_path.name  # modules are named after it, and stay imported
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    (tmp_path / "toolgate.toml").write_text('[packs]\nenabled = ["stray"]\n')
    return place


def bring(site: Path, *commands: tuple[str, str]) -> None:
    """A pack with these commands: name, target."""
    listed = ", ".join(f"Command({name!r}, 'Says {name}.', {target!r})" for name, target in commands)
    source = pack_source().replace("Pack(name=", f"Pack(commands=({listed},), name=")
    install(site, "stray", source.replace("import Pack", "import Command, Pack"))
    (site / f"said_{site.name.replace('-', '_')}.py").write_text("def say(): print('said')\n")


def target(site: Path) -> str:
    return f"said_{site.name.replace('-', '_')}:say"


def test_a_pack_brings_a_command_where_the_home_enables_it(site: Path, toolgate: Commands) -> None:
    bring(site, ("say", target(site)))
    assert "Says say." in toolgate("--help").out
    assert toolgate("say").out == "said\n"


def test_a_home_may_be_named_after_the_command(site: Path, toolgate: Commands, tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").rename(tmp_path / "elsewhere.toml")
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere.toml").rename(home / "toolgate.toml")
    bring(site, ("say", target(site)))
    assert toolgate("say").code == ExitCode.USAGE
    for flag in (["--home", str(home)], [f"--home={home}"]):
        assert "No such option" in toolgate("say", *flag).err, "found, and it takes no home"


def test_no_pack_takes_the_place_of_a_command_of_ours(site: Path, toolgate: Commands) -> None:
    bring(site, ("version", target(site)), ("consensus", target(site)), ("say", target(site)))
    assert toolgate("version").out.startswith("toolgate ")
    told = toolgate("--help")
    assert "Says version." not in told.out
    assert "Says consensus." not in told.out
    assert "pack stray brings the command version, which is there already" in told.err
    assert toolgate("say").out == "said\n"


def test_a_broken_pack_takes_no_other_command_with_it(site: Path, toolgate: Commands) -> None:
    install(site, "stray", "raise RuntimeError('boom')")
    told = toolgate("--help")
    assert told.code == 0
    assert "pack stray cannot be imported" in told.err
    assert toolgate("version").code == 0


def test_a_command_that_is_not_where_its_pack_says_is_told_so(site: Path, toolgate: Commands) -> None:
    bring(site, ("say", "nowhere_at_all:say"))
    done = toolgate("say")
    assert done.code == ExitCode.FAILED
    assert "the command say cannot be loaded from nowhere_at_all:say" in done.err


def test_a_pack_that_is_not_enabled_is_not_imported_for_its_commands(
    site: Path, toolgate: Commands, tmp_path: Path
) -> None:
    install(site, "bomb", "raise SystemExit('imported')")
    (tmp_path / "toolgate.toml").write_text("")
    assert toolgate("--help").code == 0
    assert toolgate("bomb").code == ExitCode.USAGE


def test_a_console_script_called_like_a_command_is_that_command(tmp_path: Path) -> None:
    script = tmp_path / "consensus"
    script.write_text(f"#!{sys.executable}\nfrom toolgate.cli.main import run_script\nrun_script()\n")
    script.chmod(0o755)
    done = subprocess.run(
        [script, "--help"], env=clean_environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert "Usage: consensus" in done.stdout
    other = tmp_path / "nothing"
    script.rename(other)
    done = subprocess.run([other], env=clean_environment(), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert "no pack brings a command called nothing" in done.stderr


def test_what_shipped_packs_name_before_their_doors_are_made_is_what_their_doors_bring() -> None:
    assert tuple(shipped_packs()) == DEFAULT_PACKS
    brought = [command for name in DEFAULT_PACKS for command in door_of(name).commands]
    assert list(shipped().values()) == brought
    assert len({*OWN, *shipped()}) == len(OWN) + len(brought), "a name twice"
