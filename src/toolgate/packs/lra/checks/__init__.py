"""Judging a paper: the rules, the report, and the repairs that need no author."""
