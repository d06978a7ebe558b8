"""What may happen. Start reading at `road`."""
