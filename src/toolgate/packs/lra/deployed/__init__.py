"""A paper on the web: fetched, examined, its evidence run, looked up in the registry."""
