"""What a call is: plain values, no decisions and no I/O.

Values are `msgspec.Struct`s, here and everywhere but in the settings, whose fields carry descriptions: made in C, frozen at
no cost, and defined at import in a fiftieth of the time of a dataclass. A call makes a dozen of them, a start defines a
hundred.
"""
