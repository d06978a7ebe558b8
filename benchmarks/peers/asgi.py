"""The floor under any ASGI server in Python: read the request, decode it for its id, send ready-made bytes.

No authentication, no validation, no tool, no log. The answer is as long as Toolgate's.
"""

from __future__ import annotations

from typing import Any

import listen
import orjson

DATA = b'{"text":"hello","count":100000,"flag":true}'
HEAD = b'{"jsonrpc":"2.0","result":{"structuredContent":{"data":' + DATA + b'},"padding":"' + b"x" * 900 + b'"},"id":'


async def app(_scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    answer = HEAD + b"%d}" % orjson.loads(body)["id"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    listen.serve(app, lifespan="off")
