"""The Merkle tree of RFC 9162 section 2.1: roots, inclusion proofs, consistency proofs, and their verification.

A leaf is hashed behind 0x00 and a node behind 0x01, so that no node can pass for a leaf. `Tree` keeps only the right
edge (one hash per one-bit of the size), so a log of any length is appended to in constant memory.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()


LEAF: Final = b"\x00"
"""Stands before the data of a leaf when it is hashed, so that no leaf can be taken for a node."""


def leaf_hash(data: bytes) -> bytes:
    return sha256(LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """An append-only tree, known by its right edge: the roots of its perfect subtrees, largest first."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int = 0, edge: Iterable[bytes] = ()) -> None:
        """Raises: ValueError: the edge has not one 32-byte hash per one-bit of the size."""
        self.size = size
        self._edge = list(edge)
        if size < 0 or len(self._edge) != size.bit_count() or any(len(root) != HASH_BYTES for root in self._edge):
            raise ValueError("the edge does not belong to a tree of this size")

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash: one node hash on average."""
        edge, size = self._edge, self.size
        while size & 1:
            leaf = sha256(b"\x01" + edge.pop() + leaf).digest()
            size >>= 1
        edge.append(leaf)
        self.size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add many leaf hashes; a third faster than one by one."""
        edge, size = self._edge, self.size
        push, pop = edge.append, edge.pop
        for leaf in leaves:
            node, bits = leaf, size
            while bits & 1:
                node = sha256(b"\x01" + pop() + node).digest()
                bits >>= 1
            push(node)
            size += 1
        self.size = size

    @property
    def edge(self) -> tuple[bytes, ...]:
        return tuple(self._edge)

    def root(self) -> bytes:
        if not self._edge:
            return EMPTY_ROOT
        root = self._edge[-1]
        for left in reversed(self._edge[:-1]):
            root = node_hash(left, root)
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root over leaf hashes."""
    tree = Tree()
    tree.extend(leaves)
    return tree.root()


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from leaf `index` to the root of `leaves`, nearest first (RFC 9162 section 2.1.3.1).

    Raises: IndexError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(f"no leaf {index} in a tree of {len(leaves)}")
    proof: list[bytes] = []
    low, high = 0, len(leaves)
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            proof.append(root_of(leaves[middle:high]))
            high = middle
        else:
            proof.append(root_of(leaves[low:middle]))
            low = middle
    proof.reverse()
    return proof


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """The hashes that show that the first `old_size` leaves are a prefix of `leaves` (RFC 9162 section 2.1.4.1).

    Raises: IndexError: there was no tree of that size.
    """
    if not 0 <= old_size <= len(leaves):
        raise IndexError(f"no tree of size {old_size} in a tree of {len(leaves)}")
    if old_size in (0, len(leaves)):
        return []
    proof: list[bytes] = []
    low, high, whole = 0, len(leaves), True
    while old_size != high:
        middle = low + _split(high - low)
        if old_size <= middle:
            proof.append(root_of(leaves[middle:high]))
            high = middle
        else:
            proof.append(root_of(leaves[low:middle]))
            low, whole = middle, False
    if not whole:
        proof.append(root_of(leaves[low:high]))
    proof.reverse()
    return proof


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Is `leaf` number `index` of the tree with this size and root? (RFC 9162 section 2.1.3.2)"""
    if not 0 <= index < size or not _are_hashes(leaf, root, *proof):
        return False
    first, second, result = index, size - 1, leaf
    for step in proof:
        if second == 0:
            return False
        if first & 1 or first == second:
            result = node_hash(step, result)
            while not first & 1 and first:
                first >>= 1
                second >>= 1
        else:
            result = node_hash(result, step)
        first >>= 1
        second >>= 1
    return second == 0 and result == root


def verify_consistency(old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Was the old tree only appended to? (RFC 9162 section 2.1.4.2)"""
    if not 0 <= old_size <= new_size or not _are_hashes(old_root, new_root, *proof):
        return False
    if old_size == new_size:
        return not proof and old_root == new_root
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT
    # When the old tree is one perfect subtree its root is where the path starts, and it is not sent.
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    return bool(path) and _fold_both(old_size - 1, new_size - 1, path) == (old_root, new_root)


def _fold_both(first: int, second: int, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """The old and the new root that a consistency path leads to; None if the path is too long or too short."""
    while first & 1:
        first >>= 1
        second >>= 1
    old = new = path[0]
    for step in path[1:]:
        if second == 0:
            return None
        if first & 1 or first == second:
            old, new = node_hash(step, old), node_hash(step, new)
            while not first & 1 and first:
                first >>= 1
                second >>= 1
        else:
            new = node_hash(new, step)
        first >>= 1
        second >>= 1
    return (old, new) if second == 0 else None


def _split(size: int) -> int:
    """The largest power of two smaller than `size`: where RFC 9162 parts a tree."""
    return 1 << ((size - 1).bit_length() - 1)


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
