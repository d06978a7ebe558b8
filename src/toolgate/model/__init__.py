"""What a call is: plain values, no decisions and no I/O.

Values are `msgspec.Struct`s: created in C, frozen at no cost, and defined at import in a fiftieth of the time of a dataclass;
Settings and a few small tuples are NamedTuples, which need no library.
"""
