"""Commands for people and scripts. `main.py` is the way in; each command's module is imported only when it is asked for.

Both console scripts come through here before they import anything else.
"""

from toolgate.cli.origin import leave_the_directory

leave_the_directory()
