"""What cosmic-ray runs for each mutant: ask the process that has pytest loaded (`asked.py`), and end as it says."""

import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    answer = asked.makefile().read()
sys.stdout.write(answer)
sys.exit(answer != "survived")
