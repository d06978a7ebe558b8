"""What comes from an upstream beside answers to calls."""
