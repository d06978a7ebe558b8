"""For a container's health check: exit 0 if the server of this container answers /healthz.

The port and the use of TLS are told by the same variables as to the server. The certificate is not checked: it is for the
name that clients use, and this asks the loopback address.
"""

import http.client
import os
import ssl
import sys

TIMEOUT_S = 2.0


def is_healthy(port: int, *, tls: bool) -> bool:
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    port = int(os.environ.get("TOOLGATE_SERVER_PORT", "8000"))
    sys.exit(0 if is_healthy(port, tls=bool(os.environ.get("TOOLGATE_SERVER_TLS_CERTIFICATE"))) else 1)
