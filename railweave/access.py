# SPDX-License-Identifier: Apache-2.0
"""Authentication of connections: mutual TLS, and a token that gRPC callers present to the controller.

Both ends show a certificate of the cluster's CA. Functions import gRPC only when they need it, because the
import is slow.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.errors import explain
from railweave.topologies.cluster import Cluster, TlsFiles
from railweave.topologies.errors import TopologyError

if TYPE_CHECKING:
    import grpc

TOKEN = "RAILWEAVE_TOKEN"  # noqa: S105 - a variable's name
LEAST_TOKEN = 16  # characters
HANDSHAKE_S = 2.0


@dataclass(frozen=True)
class Access:
    """The credentials of a process, and its demands on peers. By default connections are unencrypted."""

    tls: TlsFiles | None = None
    token: str = field(default="", repr=False)

    def channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """Return a client's channel to an address."""
        import grpc  # noqa: PLC0415

        if self.tls is None:
            return grpc.insecure_channel(address, options)
        files = (self.tls.ca, self.tls.key, self.tls.certificate)
        credentials = grpc.ssl_channel_credentials(*(Path(file).read_bytes() for file in files))
        if self.token:
            own = grpc.access_token_call_credentials(self.token)
            credentials = grpc.composite_channel_credentials(credentials, own)
        return grpc.secure_channel(address, credentials, options)

    def server(
        self, options: Sequence[tuple[str, Any]], *interceptors: grpc.aio.ServerInterceptor
    ) -> grpc.aio.Server:
        """Return a server that refuses calls without the token, if there is a token."""
        import grpc  # noqa: PLC0415

        required = [_token_required(self.token)] if self.token else []
        return grpc.aio.server(options=options, interceptors=[*required, *interceptors])

    def add_port(self, server: grpc.aio.Server, address: str) -> int:
        """Let a server listen on an address, and return the port. RuntimeError if it cannot be used."""
        import grpc  # noqa: PLC0415

        if self.tls is None:
            return server.add_insecure_port(address)
        key, certificate, ca = (
            Path(file).read_bytes() for file in (self.tls.key, self.tls.certificate, self.tls.ca)
        )
        credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
        return server.add_secure_port(address, credentials)

    def server_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a server without gRPC, which demands certificates; None without TLS."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.tls.certificate, self.tls.key)
        return context


IN_CLEAR = Access()


def access_of(cluster: Cluster | None, environment: Mapping[str, str] = os.environ) -> Access:
    """Check a cluster's files, and return its credentials. RAILWEAVE_TOKEN replaces the token file.

    Raises TopologyError for a file that is missing, readable for others, or does not match the other files.
    """
    token = environment.get(TOKEN, "")
    if cluster is None or cluster.tls is None:
        if token:
            raise TopologyError(
                f"{TOKEN} is set without TLS, and the token would travel in clear",
                "a cluster file with `tls`",
                f"give one, or unset {TOKEN}",
            )
        return IN_CLEAR
    check(cluster.tls)
    where = TOKEN
    if cluster.token and not token:
        where = cluster.token
        token = private_file(where).decode(errors="replace").strip()
    wanted = cluster.token or token
    if wanted and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise TopologyError(
            f"{where}: {len(token)} characters",
            f"a line of at least {LEAST_TOKEN} ASCII characters",
            "make one with `openssl rand -hex 32`",
        )
    return Access(cluster.tls, token)


def check(tls: TlsFiles) -> None:
    """Raise TopologyError if a file cannot be used, or if other users can read the key."""
    private_file(tls.key)
    _context(tls)


def refusal(tls: TlsFiles | None, address: str) -> str:
    """Try a TLS handshake, and return why an end refuses the other. '' if both accept, or nobody answers.

    gRPC itself retries for ever and gives no reason.
    """
    if tls is None:
        return ""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    reason = "it ends the connection on seeing our certificate"
    try:
        with socket.create_connection((host, int(port)), HANDSHAKE_S) as plain:
            try:
                with _context(tls).wrap_socket(plain, server_hostname=host) as connection:
                    if connection.recv(1):  # a TLS 1.3 server checks certificates after the handshake
                        return ""
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "").rstrip(".") or error.reason or str(error)
            except ConnectionError:
                pass
    except OSError:
        return ""
    return explain(
        f"TLS with {address}: {reason}", f"certificates of {tls.ca} for this address, at both ends"
    )


def _context(tls: TlsFiles) -> ssl.SSLContext:
    try:
        for file in (tls.ca, tls.certificate):
            Path(file).read_bytes()
        context = ssl.create_default_context(cafile=tls.ca)
        context.set_alpn_protocols(["h2"])
    except ssl.SSLError:
        raise TopologyError(
            f"{tls.ca}: no certificates", "certificates in PEM", "correct `tls` in the cluster file"
        ) from None
    except OSError as error:
        raise TopologyError(
            f"{error.filename}: {error.strerror}",
            "a file that can be read",
            "correct `tls` in the cluster file",
        ) from None
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")  # without it, OpenSSL would prompt
    except (ssl.SSLError, ValueError):
        raise TopologyError(
            f"{tls.certificate} and {tls.key} do not belong together",
            "a certificate and its key, in PEM without password",
            "correct `tls` in the cluster file",
        ) from None
    return context


def private_file(path: str) -> bytes:
    """Return the content of a private file, with mode 0600 of the caller's user or at most 0640 of root.

    These are PostgreSQL's rules for its key (https://www.postgresql.org/docs/current/ssl-tcp.html). Raises
    TopologyError if the file cannot be read, or if other users can read or change it.
    """
    try:
        with Path(path).open("rb") as file:
            found = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise TopologyError(
            f"{path}: {error.strerror}",
            "a file that can be read",
            "correct `tls` or `token` in the cluster file",
        ) from None
    allowed = 0o640 if found.st_uid == 0 else 0o600
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (0, os.geteuid()) or mode & ~allowed & 0o777:
        raise TopologyError(
            f"{path}: mode {mode:04o}, owner {found.st_uid}, so others could read or change it",
            "0600 of the user who runs this, or 0640 of root",
            f"run chmod 600 {path}, and chown where the owner is wrong",
        )
    return content


def _token_required(token: str) -> grpc.aio.ServerInterceptor:
    import grpc  # noqa: PLC0415

    expected = f"Bearer {token}".encode()

    async def refuse(_request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            explain(
                "no token, or another one than the controller's",
                "the token of the cluster file",
                "copy the token's file from the controller's machine",
            ),
        )

    refused: Any = grpc.stream_stream_rpc_method_handler(refuse)

    class TokenRequired(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
            given = dict(details.invocation_metadata).get("authorization", "")
            if hmac.compare_digest(str(given).encode(), expected):
                return await continuation(details)
            return refused

    return TokenRequired()
