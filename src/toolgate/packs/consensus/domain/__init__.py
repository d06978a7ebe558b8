"""What consensus IS: messages, quorum, ladder, evidence, sealing, VRF. Pure functions over integers and bytes.

No clock, randomness, float, network, built-in hash or unordered iteration (ADR-0013): tests/packs/consensus holds this room
to it by reading its syntax tree.
"""
