"""What a call is: plain values, no decisions and no I/O.

Values that a call makes are `msgspec.Struct`s: created in C, frozen at no cost, and defined at import in a fiftieth of the
time of a dataclass. Settings are dataclasses, because their fields carry descriptions; a few small tuples are NamedTuples.
"""
