"""mcp-proxy, as installed: streamable HTTP in front of a program that speaks MCP on its pipes.

pipeproxy.py COMMAND ...
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

PATIENCE_S = 60.0


def announce(port: int, out: int) -> None:
    """Tell our own starter once somebody listens."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    os.write(out, json.dumps({"url": f"http://127.0.0.1:{port}"}).encode() + b"\n")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def main() -> None:
    from mcp_proxy.__main__ import main as run

    port, out = free_port(), os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=announce, args=(port, out), daemon=True).start()
    sys.argv[1:] = ["--port", str(port), "--log-level", "CRITICAL", "--", *sys.argv[1:]]
    run()


if __name__ == "__main__":
    main()
