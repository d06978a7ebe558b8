"""Commands about what callers may do now: the stop button."""
