"""How every peer over HTTP starts: a free port, told in one line, uvicorn with uvloop and httptools, no access log."""

from __future__ import annotations

import json
import socket
from typing import Any, Literal

import uvicorn


def serve(app: Any, *, lifespan: Literal["on", "off"] = "on") -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", access_log=False, log_level="critical", lifespan=lifespan
    )
    uvicorn.Server(config).run(sockets=[listener])
