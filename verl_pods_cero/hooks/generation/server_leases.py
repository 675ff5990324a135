"""Leases of inference servers: verl's load balancer is asked once for several rollouts of a prompt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient

from verl_pods_cero.hooks.contract import overrides

ROLLOUTS_A_LEASE = 8
"""Most rollouts of a lease: more would save little, and a large group is to be spread over servers."""

LEASES_A_SERVER = 8
"""Fewest leases that a step has for each server, so that the balancer can even them out."""

Server = tuple[str, Any]


@dataclass
class _Lease:
    """A server that rollouts of one prompt go to.

    Attributes:
        prompt: its token ids.
        request_id: the rollout that the server was acquired for.
        server: the balancer's answer.
        granted: rollouts that joined, ever.
        users: rollouts that are under way.
    """

    prompt: tuple[int, ...]
    request_id: str
    server: asyncio.Task[Server]
    granted: int = 0
    users: int = 0


def with_leases(client: Any) -> Any:
    """Return a client that leases servers, or the same client where leases would change what verl promises.

    They would where the choice of a server depends on the request: with a router of `rollout.router_config_path`,
    and with full determinism. Clients of other classes than the synchronous trainer's are left alone as well.
    """
    rollout = client.config.actor_rollout_ref.rollout
    by_request = rollout.get("router_config_path") or rollout.get("full_determinism", False)
    return client if by_request or type(client) is not LLMServerClient else LeasingClient(client)


def rollouts_a_lease(rollouts: int, servers: int) -> int:
    """Return how many rollouts may share a lease, for a step of so many rollouts.

    Formula:
        min(8, rollouts / (8 servers)), and 1 at least; a single server leaves nothing to balance.

    >>> [rollouts_a_lease(8192, servers) for servers in (1, 8, 128, 512)]
    [8, 8, 8, 2]
    >>> rollouts_a_lease(128, servers=32)
    1
    """
    if servers <= 1:
        return ROLLOUTS_A_LEASE
    return max(1, min(ROLLOUTS_A_LEASE, rollouts // (LEASES_A_SERVER * servers)))


class LeasingClient(LLMServerClient):
    """verl's client for agent loops of a single turn, with one lease for several rollouts of a prompt.

    verl asks its balancer for a server before each rollout and tells it after: two calls to one process that serves
    the whole run, and an actor's handle to unpack, which takes longer than either. Here the rollouts of a
    prompt that are under way together share the answer. The balancer counts leases in place of rollouts, and
    rollouts with a common prefix meet in one server's cache.

    Args:
        client: the client in whose place it stands.
    """

    def __init__(self, client: LLMServerClient) -> None:
        super().__init__(client.config, client._load_balancer)
        self._size: asyncio.Task[int] | None = None
        self._open: dict[tuple[int, ...], _Lease] = {}
        self._of_request: dict[str, _Lease] = {}

    @overrides
    async def _acquire_server(self, request_id: str, **extra: Any) -> Server:
        if self._size is None:
            self._size = asyncio.ensure_future(self._lease_size())
        lease = self._lease(request_id, extra, await asyncio.shield(self._size))
        lease.granted += 1
        lease.users += 1
        self._of_request[request_id] = lease
        try:
            # Shielded: the others wait for the same answer if this rollout is cancelled.
            return await asyncio.shield(lease.server)
        except BaseException:
            if not self._leave(request_id).users:
                lease.server.add_done_callback(lambda server: self._release_unused(server, lease))
            raise

    @overrides
    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        assert request_id is not None, "verl's client names the request that it acquired for"
        lease = self._leave(request_id)
        if not lease.users:
            super()._release_server(server_id, lease.request_id)

    def _release_unused(self, server: asyncio.Task[Server], lease: _Lease) -> None:
        """Release a server that came when nobody waited for it any more."""
        if not server.cancelled() and server.exception() is None:
            super()._release_server(server.result()[0], lease.request_id)

    async def _lease_size(self) -> int:
        servers = await self._load_balancer.get_all_servers.remote()
        rollouts = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        return rollouts_a_lease(rollouts, len(servers))

    def _lease(self, request_id: str, extra: dict[str, Any], most: int) -> _Lease:
        """Return the open lease of a prompt, or a new one."""
        prompt = tuple(extra["prompt_ids"])
        lease = self._open.get(prompt)
        if lease is None or lease.granted >= most:
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
