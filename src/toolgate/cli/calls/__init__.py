"""Commands about tools and calls: list tools, call one, connect a client."""
