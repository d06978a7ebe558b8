"""Conditions over one call, written in CEL: declared from a tool's schema, checked when a server starts, judged at each call."""
