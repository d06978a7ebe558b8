"""FastMCP's proxy over standard input and output, in front of the server that the first word describes as JSON."""

from __future__ import annotations

import json
import sys

from fast_transport import transport
from fastmcp.server import create_proxy

create_proxy(transport(json.loads(sys.argv[1])), name="proxy").run(transport="stdio", show_banner=False)
