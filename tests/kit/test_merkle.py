"""The tree of RFC 9162: checked against the recursive definition, against published roots, and against forgeries."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit import merkle

# The eight inputs and the roots after each that the public certificate-transparency test suites share.
CT_INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def leaves_of(count: int) -> list[bytes]:
    return [merkle.leaf_hash(b"record %d" % number) for number in range(count)]


def root_by_definition(leaves: list[bytes]) -> bytes:
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return merkle.node_hash(root_by_definition(leaves[:half]), root_by_definition(leaves[half:]))


def test_roots_equal_the_published_ones() -> None:
    leaves = [merkle.leaf_hash(bytes.fromhex(text)) for text in CT_INPUTS]
    assert [merkle.root_of(leaves[:size]).hex() for size in range(1, 9)] == CT_ROOTS
    assert merkle.root_of([]) == merkle.EMPTY_ROOT


@pytest.mark.parametrize("size", range(70))
def test_the_right_edge_gives_the_root_of_the_definition(size: int) -> None:
    leaves = leaves_of(size)
    assert merkle.root_of(leaves) == root_by_definition(leaves)


@given(st.integers(1, 200), st.data())
def test_every_leaf_can_be_proved_and_nothing_else(size: int, data: st.DataObject) -> None:
    leaves = leaves_of(size)
    root = merkle.root_of(leaves)
    index = data.draw(st.integers(0, size - 1))
    proof = merkle.inclusion_proof(leaves, index)
    assert merkle.verify_inclusion(leaves[index], index, size, proof, root)
    other = data.draw(st.integers(0, size - 1).filter(lambda one: one != index)) if size > 1 else None
    if other is not None:
        assert not merkle.verify_inclusion(leaves[other], index, size, proof, root)
    assert not merkle.verify_inclusion(merkle.leaf_hash(b"forged"), index, size, proof, root)
    assert not merkle.verify_inclusion(leaves[index], index, size, [*proof, root], root)
    assert not merkle.verify_inclusion(leaves[index], size, size, proof, root)
    if proof:
        assert not merkle.verify_inclusion(leaves[index], index, size, proof[:-1], root)


@given(st.integers(0, 200), st.data())
def test_growth_can_be_proved_and_a_rewritten_past_cannot(size: int, data: st.DataObject) -> None:
    leaves = leaves_of(size)
    old_size = data.draw(st.integers(0, size))
    old_root, root = merkle.root_of(leaves[:old_size]), merkle.root_of(leaves)
    proof = merkle.consistency_proof(leaves, old_size)
    assert merkle.verify_consistency(old_size, size, old_root, root, proof)
    if old_size:
        changed = data.draw(st.integers(0, old_size - 1))
        forged = [*leaves]
        forged[changed] = merkle.leaf_hash(b"forged")
        forged_proof = merkle.consistency_proof(forged, old_size)
        assert not merkle.verify_consistency(old_size, size, old_root, merkle.root_of(forged), forged_proof)
    if proof:
        assert not merkle.verify_consistency(old_size, size, old_root, root, proof[:-1])
        assert not merkle.verify_consistency(old_size, size, old_root, root, [*proof, root])
    if size > old_size:
        assert not merkle.verify_consistency(size, old_size, root, old_root, proof)


@given(st.integers(0, 300), st.integers(0, 40))
def test_a_tree_continues_from_its_saved_edge(before: int, after: int) -> None:
    leaves = leaves_of(before + after)
    tree = merkle.Tree()
    for leaf in leaves[:before]:
        tree.append(leaf)
    resumed = merkle.Tree(tree.size, tree.edge)
    for leaf in leaves[before:]:
        resumed.append(leaf)
    assert (resumed.size, resumed.root()) == (before + after, merkle.root_of(leaves))


@pytest.mark.parametrize(("size", "edge"), [(1, []), (3, [b"x" * 32]), (1, [b"short"]), (-1, [b"x" * 32])])
def test_an_edge_of_another_size_is_refused(size: int, edge: list[bytes]) -> None:
    with pytest.raises(ValueError, match="does not belong"):
        merkle.Tree(size, edge)


def test_a_node_cannot_pass_for_a_leaf() -> None:
    left, right = leaves_of(2)
    assert merkle.leaf_hash(left + right) != merkle.node_hash(left, right)


def test_what_is_not_in_the_tree_cannot_be_asked_for() -> None:
    with pytest.raises(IndexError):
        merkle.inclusion_proof(leaves_of(3), 3)
    with pytest.raises(IndexError):
        merkle.consistency_proof(leaves_of(3), 4)
