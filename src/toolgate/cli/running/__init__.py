"""Commands that reach running servers by their control sockets."""
