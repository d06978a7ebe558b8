"""What the pages look things up in: made from the log, bounded, and made again whenever it is lost."""
