"""Findings in the forms that people and their tools read."""
