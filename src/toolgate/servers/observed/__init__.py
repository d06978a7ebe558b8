"""What a server shows operators while it is ready."""
