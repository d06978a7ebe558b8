"""Decides what may happen. Start reading at `road`."""
