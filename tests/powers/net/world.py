"""A small internet on loopback: our own resolver, our own servers (plain and TLS), and a connector between them.

Names resolve to public addresses; the connector routes each (address, port) to a real server on 127.0.0.1 and reports
the public address as its peer, as a router would. Everything above the socket is the real thing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.homes import PATIENCE_S
from toolgate.model.tool import Hosts
from toolgate.powers import tcp
from toolgate.powers.net import FetchLimits, PackEgress

ANYWHERE = Hosts(any_public=True)
PUBLIC = "93.184.215.14"
OTHER_PUBLIC = "151.101.1.69"


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


Handler = Callable[[Seen, asyncio.StreamWriter], Awaitable[bytes | None]]


def answer(body: bytes = b"", *, status: str = "200 OK", kind: str = "text/html", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(to: str) -> bytes:
    return answer(status="302 Found", Location=to)


def pages(**routes: bytes) -> Handler:
    """`index` is `/`; any other name is its path."""

    async def handle(seen: Seen, writer: asyncio.StreamWriter) -> bytes:
        name = seen.path.partition("?")[0].strip("/").replace(".", "_") or "index"
        return routes.get(name, answer(b"no such page", status="404 Not Found"))

    return handle


class Relabelled:
    """A stream to loopback that says which public address it stands for."""

    def __init__(self, inner: tcp.Stream, peer: str) -> None:
        self.inner, self.peer = inner, peer

    async def receive(self, max_bytes: int) -> bytes:
        return await self.inner.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    def close(self) -> None:
        self.inner.close()


@dataclass
class World:
    names: dict[str, list[str]] = field(default_factory=dict)
    routes: dict[tuple[str, int], int] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    connected: list[tuple[str, int]] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    servers: list[asyncio.Server] = field(default_factory=list)
    talks: set[asyncio.Task[Any]] = field(default_factory=set)
    relabel: bool = True

    async def resolver(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]

    async def connector(self, address: str, port: int) -> tcp.Stream:
        self.connected.append((address, port))
        real = self.routes.get((address, port))
        if real is None:
            raise ConnectionRefusedError
        stream = await tcp.connect("127.0.0.1", real)
        return Relabelled(stream, address) if self.relabel else stream

    async def serve(self, handler: Handler, *, tls: str | None = None) -> int:
        """Start a server; the port is its real one on loopback."""

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self.talks.add(task)
            try:
                while request := await _read_request(reader):
                    self.seen.append(request)
                    reply = await handler(request, writer)
                    if reply is None:
                        break
                    writer.write(reply)
                    await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=server_tls(tls) if tls else None)
        self.servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def site(self, name: str, handler: Handler, *, address: str = PUBLIC, certificate: str | None = None) -> None:
        """An https site at a public address, port 443."""
        self.names.setdefault(name, [address])
        self.routes[(address, 443)] = await self.serve(handler, tls=certificate or name)

    def egress(self, **options: Any) -> PackEgress:
        options.setdefault("limits", FetchLimits(timeout_s=PATIENCE_S))
        options.setdefault("tls", client_tls())
        hosts = options.pop("hosts", None)
        if hosts is None:
            hosts = Hosts(private=options.pop("allow", ()), any_public=True)
        return PackEgress(hosts, resolver=self.resolver, connector=self.connector, **options)


async def _read_request(reader: asyncio.StreamReader) -> Seen | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    built = World()
    try:
        yield built
    finally:
        for server in built.servers:
            server.close()
        for task in built.talks:
            task.cancel()
        await asyncio.gather(*built.talks, return_exceptions=True)


# -- certificates --------------------------------------------------------------------------------------------


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


@cache
def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _certificate("test authority", key, key, None, authority=True)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    *,
    authority: bool = False,
    expired: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC) - dt.timedelta(days=2 if expired else 0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer.subject if issuer else _name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(_usage(authority=authority), critical=True)  # Python 3.13 checks strictly (RFC 5280)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(signer, hashes.SHA256())


@cache
def server_tls(name: str, *, expired: bool = False) -> ssl.SSLContext:
    authority_key, authority = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, authority_key, authority, expired=expired)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(file.name)
    return context


@cache
def client_tls() -> ssl.SSLContext:
    """Trusts our own authority and nobody else."""
    return ssl.create_default_context(cadata=_authority()[1].public_bytes(serialization.Encoding.PEM).decode())
