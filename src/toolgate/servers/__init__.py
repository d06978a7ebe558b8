"""How bytes move: HTTP, stdio, the dev site, start and stop."""
