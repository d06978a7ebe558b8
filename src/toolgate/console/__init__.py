"""The console: pages for people who have a key, at /console. They show what the log holds and what the server knows of itself."""
