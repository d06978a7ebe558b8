"""Signed receipts: their forms, their log, and whose signature counts."""
