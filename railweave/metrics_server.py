# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of ranks and of the controller for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from railweave.access import IN_CLEAR, Access
from railweave.http_server import DEADLINE_S, BoundedServer


class MetricsServer:
    """Answer scrapes until it is closed."""

    def __init__(
        self,
        listen: str,
        collect: Callable[[], Iterable[Metric]],
        access: Access = IN_CLEAR,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Listen on HOST:PORT, port 0 for a free one; with TLS if `access` has certificates.

        `collect` runs once per scrape, in a separate thread. A connection ends after `deadline_s`.
        Raises OSError, ValueError or OverflowError if the address cannot be used.
        """
        host, _, port = listen.rpartition(":")
        self._collect = collect
        self._server = BoundedServer(host, int(port), self._answer, access.server_context(), deadline_s)
        self.address = f"{host}:{self._server.server_port}"

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._server.connections)

    def close(self) -> None:
        """Close all connections at once, and stop."""
        self._server.stop()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        registry = CollectorRegistry()
        try:
            registry.register(_Collected(list(self._collect())))
        except Exception as error:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{error}\n".encode()]
        answer: Iterable[bytes] = make_wsgi_app(registry)(environ, start_response)
        return answer


class _Collected(Collector):
    """Yields metrics that were read before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics
