"""`toolgate policy` and `toolgate contract`."""
