"""The consensus pack: arbiters certify tuples of a Merkle root and a rule hash, round by round (document 004)."""
