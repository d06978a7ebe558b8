"""Reading the log back: finding records, explaining them, exporting them, verifying and proving them, comparing two logs."""
