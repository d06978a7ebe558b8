"""A Gold paper that was built, with data, figures, code and a module, then deployed: any change of any file is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.lra.build.sources import built, judged, paper, png
from tests.packs.lra.receipts.samples import SIGNED_AT
from tests.packs.lra.static import hosted
from tests.packs.lra.test_signals import put, reaching, see, spoiled
from tests.support import need
from toolgate.errors import ToolError
from toolgate.packs.lra.deployed import registry
from toolgate.powers.compute import ComputePool

pytestmark = [pytest.mark.guard, pytest.mark.timeout(300)]

BODY = """# Method {#sec-a}

See [the code](code/run.py), [@doe], @fig-a and @tbl-a: {{results.json#n}} points, or {{results.json#share|.1%}}.

$$\\begin{aligned} a &= b \\\\ &= c \\end{aligned}$$

![A picture](a.png){#fig-a}

![A table](t.csv){#tbl-a}

::: {.claim #clm-count evidence="demo-1" run="wasm/lattice.wasm#count" input="100"}
Exactly [{{results.json#n|,d}}]{.expect} points lie within distance 100.
:::

::: {.claim evidence="fig-a"}
It can be seen.
:::

::: {.demo #demo-1 title="Count" run="wasm/lattice.wasm#count" says="N({r}) = {result}"}
[Radius]{.slider name=r min=1 max=120 value=20}

[Counts]{.plot over=r}
:::
"""
BESIDE = {
    "code/run.py": b"print(31417)\n",
    "results.json": b'{"n": 31417, "share": 0.78543}',
    "a.png": png(40, 20),
    "t.csv": b"r,n\n1,5\n100,31417\n",
}
EXPECTED = {
    *("index.html", "paper.css", "math.css", "paper.js", "sw.js", "CITATION.cff", "LICENSE"),
    *("wasm/lattice.wasm", "code/run.py", "results.json", "a.png", "t.csv"),
}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    need("pandoc")
    source = paper(BODY, "capability: lattice-count\n").replace("claims: [One.]\n", "")
    made = built(source, BESIDE).files
    assert judged(made).tier == "GOLD"
    assert set(made) == EXPECTED
    return made


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(1)
    yield made
    made.close()


class Deployment:
    def __init__(self, directory: Path, port: int, pool: ComputePool, files: dict[str, bytes]) -> None:
        self.directory, self.pool, self.files = directory, pool, files
        self.pair, self.url = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}/gold/"
        seen = asyncio.run(see(reaching(self.pair), pool, self.url, run=True))
        assert seen.passed, [step.text for step in seen.steps if step.status == "FAIL"]
        assert {file["name"] for file in seen.receipt["files"]} == set(files)
        entry = registry.entry_of(seen.receipt, seen.examined.facts, SIGNED_AT)
        self.known = registry.parse(registry.with_entry(None, entry, SIGNED_AT))

    def notices(self, name: str, data: bytes) -> bool:
        """Whether verify fails with this one file changed; the file is put back."""
        (self.directory / name).write_bytes(data)
        try:
            return not asyncio.run(see(reaching(self.pair), self.pool, self.url, self.known, run=True)).passed
        except ToolError:
            return True
        finally:
            (self.directory / name).write_bytes(self.files[name])


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, pool: ComputePool, files: dict[str, bytes]
) -> Iterator[Deployment]:
    directory = put(tmp_path_factory.mktemp("built") / "gold", files)
    with hosted(directory.parent) as port:
        yield Deployment(directory, port, pool, files)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_change_of_each_file_of_a_built_paper_is_noticed(deployment: Deployment, name: str) -> None:
    for data in spoiled(deployment.files[name]):
        assert deployment.notices(name, data)


@cases(30, 200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_byte_of_a_built_paper_that_changes_is_noticed(deployment: Deployment, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(EXPECTED)), "file")
    place = data.draw(st.integers(0, len(deployment.files[name]) - 1), "byte")
    changed = bytearray(deployment.files[name])
    changed[place] ^= data.draw(st.integers(1, 255), "by")
    assert deployment.notices(name, bytes(changed))
