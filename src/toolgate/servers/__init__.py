"""Transports: HTTP and stdio, start and stop."""
