"""What decides about one call beyond its role: stops by an operator."""
