"""ContextForge as installed: SQLite, one worker, JWT authentication. It forwards to a server that is already running.

gateway.py UPSTREAM_PORT
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

PATIENCE_S = 60.0
ADMIN = "admin@example.com"


def settings(folder: str) -> dict[str, str]:
    """Secrets of its own in place of the placeholders it refuses, and leave to call a server on this machine."""
    made = {name: secrets.token_hex(32) for name in ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET")}
    passwords = ("BASIC_AUTH_PASSWORD", "PLATFORM_ADMIN_PASSWORD", "DEFAULT_USER_PASSWORD")
    made |= {name: f"Aa1-{secrets.token_hex(16)}" for name in passwords}
    return made | {
        "PLATFORM_ADMIN_EMAIL": ADMIN,
        "DATABASE_URL": f"sqlite:///{folder}/mcp.db",
        "HOST": "127.0.0.1",
        "ENVIRONMENT": "development",
        "LOG_LEVEL": "CRITICAL",
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
    }


def token(secret: str) -> str:
    command = [sys.executable, "-m", "mcpgateway.utils.create_jwt_token", "--username", ADMIN, "--exp", "600"]
    done = subprocess.run([*command, "--secret", secret, "--admin"], capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def post(url: str, bearer: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {bearer}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=PATIENCE_S):
        pass


def announce(url: str, upstream: str, out: int) -> None:
    """Once it answers, tell it its upstream, then tell our own starter that it is ready."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S).close()
            break
        except urllib.error.URLError:
            time.sleep(0.2)
    bearer = token(os.environ["JWT_SECRET_KEY"])
    body = {"name": "up", "url": f"http://127.0.0.1:{upstream}/mcp", "transport": "STREAMABLEHTTP"}
    post(f"{url}/gateways", bearer, body)
    os.write(out, json.dumps({"url": url, "token": bearer}).encode() + b"\n")


def main() -> None:
    upstream, folder = sys.argv[1:]
    os.environ.update(settings(folder))
    os.chdir(folder)
    out = os.dup(1)
    os.dup2(2, 1)  # it prints while it makes its tables
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    threading.Thread(target=announce, args=(url, upstream, out), daemon=True).start()
    import uvicorn

    config = uvicorn.Config("mcpgateway.main:app", access_log=False, log_level="critical")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
