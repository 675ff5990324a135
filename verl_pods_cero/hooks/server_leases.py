"""Leases of inference servers: verl's load balancer is asked once for several rollouts of a prompt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient

ROLLOUTS_A_LEASE = 8
"""Enough to make asking cheap, few enough to leave the balancer its say: a large group goes to several servers."""

Server = tuple[str, Any]


@dataclass
class _Lease:
    prompt: tuple[int, ...]
    request_id: str
    server: asyncio.Task[Server]
    granted: int = 0
    users: int = 0


def can_lease(client: Any) -> bool:
    """Whether rollouts may share verl's choice of a server.

    Not where the choice is to depend on the request: a router of the user's own, or verl's full determinism, or
    another client than that of the synchronous trainer.
    """
    rollout = client.config.actor_rollout_ref.rollout
    own_router = rollout.get("router_config_path") is not None
    return type(client) is LLMServerClient and not own_router and not rollout.get("full_determinism", False)


class LeasingClient(LLMServerClient):
    """verl's client for agent loops of a single turn, with one lease for up to eight rollouts of a prompt.

    verl asks its balancer for a server before each rollout and tells it after: two calls to one process that serves
    the whole run, and an actor's handle to unpack, which takes longer than either. Here the rollouts of a
    prompt that are under way together share the answer. The balancer counts leases in place of rollouts, and
    rollouts with a common prefix meet in one server's cache.

    Args:
        client: the client in whose place it stands.
    """

    def __init__(self, client: LLMServerClient) -> None:
        super().__init__(client.config, client._load_balancer)
        self._open: dict[tuple[int, ...], _Lease] = {}
        self._of_request: dict[str, _Lease] = {}

    async def _acquire_server(self, request_id: str, **extra: Any) -> Server:
        lease = self._lease(request_id, extra)
        lease.granted += 1
        lease.users += 1
        self._of_request[request_id] = lease
        try:
            # Shielded: the others wait for the same answer if this rollout is cancelled.
            return await asyncio.shield(lease.server)
        except BaseException:
            if not self._leave(request_id).users:
                lease.server.add_done_callback(lambda server: self._give_back(server, lease))
            raise

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        assert request_id is not None, "verl's client names the request that it acquired for"
        lease = self._leave(request_id)
        if not lease.users:
            super()._release_server(server_id, lease.request_id)

    def _give_back(self, server: asyncio.Task[Server], lease: _Lease) -> None:
        """Release a server that came when nobody waited for it any more."""
        if not server.cancelled() and server.exception() is None:
            super()._release_server(server.result()[0], lease.request_id)

    def _lease(self, request_id: str, extra: dict[str, Any]) -> _Lease:
        """Return the open lease of a prompt, or a new one."""
        prompt = tuple(extra["prompt_ids"])
        lease = self._open.get(prompt)
        if lease is None or lease.granted == ROLLOUTS_A_LEASE:
            server = asyncio.ensure_future(super()._acquire_server(request_id, **extra))
            lease = self._open[prompt] = _Lease(prompt, request_id, server)
        return lease

    def _leave(self, request_id: str) -> _Lease:
        """Take a rollout off its lease, and close the lease after the last."""
        lease = self._of_request.pop(request_id)
        lease.users -= 1
        if not lease.users and self._open.get(lease.prompt) is lease:
            del self._open[lease.prompt]
        return lease
