"""OAuth 2.1 as a client, for upstreams that want a login (ADR-0027)."""
