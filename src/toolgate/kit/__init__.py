"""Pure tools of the trade, shared by rooms that do not know each other. No I/O, no clock, no randomness."""
