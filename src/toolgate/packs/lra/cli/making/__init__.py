"""Papers from sources: the programs that do it, and what the commands do with them."""
