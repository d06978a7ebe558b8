"""This server as an arbiter: which network it is in, what it says in its rounds, and what it keeps of them."""
