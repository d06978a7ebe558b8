"""What the people in charge have decided about tools: the manifest, the contract lock, and when a server may not start."""
