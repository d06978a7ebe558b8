"""The index of a log that is too long for one page: read in a worker process, which may not write, and written here."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from tests.console.index.test_index import Log
from tests.console.visiting import CONSOLE, visitor
from tests.homes import PATIENCE_S, Home, make_home
from tests.waiting import until
from toolgate.console.index.building import CatchUp, behind, next_piece, put_piece, read_piece
from toolgate.console.index.reading import reading
from toolgate.console.site import SOON_BYTES

RECORDS = 3000


def long_log(path: Path, records: int = RECORDS) -> Log:
    path.mkdir()
    log = Log(path)
    for number in range(records):
        log.call(number)
    assert sum(each.stat().st_size for each in log.path.glob("*.jsonl")) > SOON_BYTES
    return log


def built(log: Log, most: int) -> list[int]:
    """The bytes of each piece, as a server does it."""
    asked, done, read = CatchUp(str(log.path), str(log.index), most), set[tuple[str, int]](), []
    while (place := next_piece(asked, done)) is not None:
        piece = read_piece(place)
        put_piece(asked, place, piece)
        read.append(piece.read)
        if piece.read < place.size:
            done.add((place.run, place.segment))
    return read


def folder_of(home: Home) -> Path:
    return home.path / "runs" / "mcp_server" / "envelope_validation"


def test_a_server_makes_the_index_of_a_long_log(tmp_path: Path) -> None:
    log = long_log(tmp_path / "made")
    home = make_home(tmp_path / "home", settings=CONSOLE)
    with home.serving() as server:
        for each in log.path.glob("*.jsonl"):
            if not each.is_symlink():
                shutil.move(each, folder_of(home) / each.name)
        admin = visitor(server, home.keys["admin"])
        assert admin.get().status == 200, "nobody waits for it"

        def listed() -> bool:
            return len(admin.get("calls.jsonl").text.splitlines()) == RECORDS

        until(listed, "every record of the log is in the index", 4 * PATIENCE_S)
        found = re.search(r'<dt>Index</dt><dd><a href="[^"]*">([0-9\u202f]+) calls</a>', admin.get().text)
        assert found is not None
        assert int(found[1].replace("\u202f", "")) == RECORDS


@pytest.mark.parametrize("most", [10_000, 200_000, 10**9])
def test_pieces_of_any_size_make_the_same_index(tmp_path: Path, most: int) -> None:
    log = long_log(tmp_path / "made")
    read = built(log, most)
    assert log.requests() == list(range(RECORDS))
    assert behind(log.path, log.index).waiting == 0
    assert sum(read) == behind(log.path, log.index).indexed
    assert built(log, most) == [], "nothing is read twice"


def test_a_file_that_grows_all_the_time_does_not_keep_older_ones_waiting(tmp_path: Path) -> None:
    log = long_log(tmp_path / "made")
    log.clock.now += 5
    log.run(2)
    asked, done, seen = CatchUp(str(log.path), str(log.index), 100_000), set[tuple[str, int]](), []
    while (place := next_piece(asked, done)) is not None:
        log.call(RECORDS + len(seen))  # between any two looks
        piece = read_piece(place)
        put_piece(asked, place, piece)
        seen.append(place.run)
        if piece.read < place.size:
            done.add((place.run, place.segment))
        assert len(seen) < 1000, "it never ends"
    assert set(range(RECORDS)) <= set(log.requests())


def test_what_another_process_has_put_there_meanwhile_is_not_put_there_again(tmp_path: Path) -> None:
    log = long_log(tmp_path / "made")
    asked = CatchUp(str(log.path), str(log.index), 50_000)
    place = next_piece(asked, ())
    assert place is not None
    piece = read_piece(place)
    log.fresh()
    before = behind(log.path, log.index)
    put_piece(asked, place, piece)
    assert log.requests() == list(range(RECORDS))
    assert behind(log.path, log.index) == before
    with reading(log.index, log.path, None, {}) as index:
        assert sum(each.calls for each in index.by("tool", 0)) == RECORDS


def test_a_packed_file_is_read_to_its_end_in_pieces(tmp_path: Path) -> None:
    log = long_log(tmp_path / "made")
    plain = next(each for each in log.path.glob("*.jsonl") if not each.is_symlink())
    plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert len(built(log, 20_000)) > 2
    assert log.requests() == list(range(RECORDS))
    assert behind(log.path, log.index).waiting == 0
