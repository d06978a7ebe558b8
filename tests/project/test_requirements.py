"""Requirements and tests, in both directions: no row without a test, no test with an id that is not a row."""

from __future__ import annotations

import ast
from functools import cache

from tests.requirements import HERE, rows


@cache
def carried() -> dict[str, list[str]]:
    """Ids in `@pytest.mark.req(...)`, found in the source: also in tests that this machine skips."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "mark.req" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}: an id is written out"
                    found.setdefault(str(argument.value), []).append(str(path.relative_to(HERE)))
    return found


def test_every_requirement_is_carried_by_a_test() -> None:
    assert sorted(set(rows()) - set(carried())) == []


def test_every_id_that_a_test_carries_is_a_requirement() -> None:
    assert {key: places for key, places in carried().items() if key not in rows()} == {}


def test_each_row_names_its_document() -> None:
    assert [key for key, sentence in rows().items() if not sentence.startswith(("document 00", "decision"))] == []


def test_the_rows_cover_all_four_documents() -> None:
    assert {key.partition("-")[0] for key in rows()} >= {"000", "001", "002", "004"}
