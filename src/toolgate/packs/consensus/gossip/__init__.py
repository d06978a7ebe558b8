"""What arbiters tell each other, and the service that does it between calls."""
