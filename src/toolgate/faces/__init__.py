"""How it is spelt: pure codecs between wire and call, and between answer and wire. No decision is taken here."""
