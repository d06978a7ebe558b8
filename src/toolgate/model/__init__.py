"""What a call is: plain values, no decisions and no I/O."""
