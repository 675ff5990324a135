"""Rollouts of a prompt share the balancer's choice of a server, and it is told when the last of them ended."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from verl_pods_cero.hooks.server_leases import ROLLOUTS_A_LEASE, LeasingClient, can_lease


class Method:
    """A method of a Ray actor, as it is called."""

    def __init__(self, function):
        self.remote = function


class Balancer:
    """verl's balancer as its client sees it: the least loaded of two servers, and a count of what is under way."""

    def __init__(self, failures=0):
        self.load = Counter({"a": 0, "b": 0})
        self.asked = []
        self.failures = failures
        for name in ("acquire_server", "release_server", "require_acquire_fields", "require_release_fields"):
            setattr(self, name, Method(getattr(self, f"_{name}")))

    async def _acquire_server(self, request_id):
        self.asked.append(request_id)
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("No available servers in load balancer")
        server = min(self.load, key=self.load.__getitem__)
        self.load[server] += 1
        return server, f"handle of {server}"

    def _release_server(self, server_id):
        self.load[server_id] -= 1

    async def _require_acquire_fields(self):
        return []

    async def _require_release_fields(self):
        return []


def client(balancer=None, **rollout) -> LeasingClient:
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    return LeasingClient(LLMServerClient(config, balancer))


async def acquire(leasing, prompt, *requests):
    """Acquire for several rollouts of a prompt together, as an agent loop does; return the servers' names."""
    answers = await asyncio.gather(*(leasing._acquire_server(each, prompt_ids=prompt) for each in requests))
    assert all(handle == f"handle of {server}" for server, handle in answers)
    return [server for server, _ in answers]


def test_rollouts_of_a_prompt_ask_once_and_the_last_of_them_tells():
    async def scenario():
        balancer = Balancer()
        leasing = client(balancer)
        (server, again, third) = await acquire(leasing, [1, 2], "r0", "r1", "r2")
        assert (server, again, third) == ("a", "a", "a") and balancer.asked == ["r0"]
        for request in ("r1", "r0"):
            leasing._release_server(server, request)
            assert balancer.load["a"] == 1
        leasing._release_server(server, "r2")
        assert balancer.load["a"] == 0
        assert not leasing._open and not leasing._of_request

    asyncio.run(scenario())


def test_other_prompts_and_large_groups_ask_anew_and_go_to_the_least_loaded_server():
    async def scenario():
        balancer = Balancer()
        leasing = client(balancer)
        assert await acquire(leasing, [1], "p") == ["a"]
        assert await acquire(leasing, [2], "q") == ["b"]
        requests = [f"r{i}" for i in range(2 * ROLLOUTS_A_LEASE)]
        servers = await acquire(leasing, [3], *requests)
        assert Counter(servers) == {"a": ROLLOUTS_A_LEASE, "b": ROLLOUTS_A_LEASE}
        assert balancer.load == {"a": 2, "b": 2}
        for request, server in zip(["p", "q", *requests], ["a", "b", *servers], strict=True):
            leasing._release_server(server, request)
        assert balancer.load == {"a": 0, "b": 0} and not leasing._open

    asyncio.run(scenario())


def test_a_prompt_met_again_after_its_rollouts_ended_is_asked_for_anew():
    async def scenario():
        balancer = Balancer()
        leasing = client(balancer)
        for round_ in range(2):
            (server,) = await acquire(leasing, [1], f"r{round_}")
            leasing._release_server(server, f"r{round_}")
        assert balancer.asked == ["r0", "r1"]

    asyncio.run(scenario())


def test_a_failure_reaches_every_rollout_that_waited_and_none_after_it():
    async def scenario():
        balancer = Balancer(failures=1)
        leasing = client(balancer)
        answers = await asyncio.gather(
            *(leasing._acquire_server(each, prompt_ids=[1]) for each in ("r0", "r1")), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["No available servers in load balancer"] * 2
        assert await acquire(leasing, [1], "r2") == ["a"]

    asyncio.run(scenario())


def test_a_cancelled_rollout_leaves_the_others_their_server_and_does_not_keep_it():
    async def scenario():
        balancer = Balancer()
        leasing = client(balancer)
        first, second = (asyncio.create_task(leasing._acquire_server(each, prompt_ids=[1])) for each in ("r0", "r1"))
        await asyncio.sleep(0)
        first.cancel()
        server, _ = await second
        with pytest.raises(asyncio.CancelledError):
            await first
        leasing._release_server(server, "r1")
        assert balancer.load["a"] == 0

    asyncio.run(scenario())


def test_a_server_that_comes_when_all_were_cancelled_is_given_back():
    async def scenario():
        balancer = Balancer()
        leasing = client(balancer)
        waiting = [asyncio.create_task(leasing._acquire_server(each, prompt_ids=[1])) for each in ("r0", "r1")]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert balancer.asked == ["r0"] and balancer.load["a"] == 0
        assert not leasing._open and not leasing._of_request

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("rollout", "shares"),
    [
        ({}, True),
        ({"router_config_path": None}, True),
        ({"router_config_path": "my.yaml"}, False),
        ({"full_determinism": True}, False),
    ],
)
def test_servers_are_shared_where_verl_chooses_them_by_load(rollout, shares):
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    assert can_lease(LLMServerClient(config, None)) is shares
    assert not can_lease(FullyAsyncLLMServerClient(config, None))
