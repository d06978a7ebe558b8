"""A server as one or several processes: the private socket by which its operator reaches it."""
