"""Mutation testing of the gate."""
