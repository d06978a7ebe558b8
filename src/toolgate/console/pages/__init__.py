"""One file a page: what it needs of index and server, as values for its template."""
