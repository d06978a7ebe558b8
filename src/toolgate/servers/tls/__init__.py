"""TLS of our own: the certificate, and the layer between a socket and its connection."""
