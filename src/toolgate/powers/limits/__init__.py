"""Where limits are counted that several processes share."""
