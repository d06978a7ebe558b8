"""Commands for people and scripts. `main.py` is the way in; each command's module is imported only when it is asked for."""
