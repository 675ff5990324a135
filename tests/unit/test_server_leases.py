"""Rollouts of a prompt share the balancer's choice of a server, and it is told when the last of them ended."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from verl_pods_cero.hooks.generation import worker as agent_loop
from verl_pods_cero.hooks.generation.server_leases import ROLLOUTS_A_LEASE, LeasingClient, with_leases

router = pytest.importorskip("verl.workers.rollout.router", reason="verl 0.9.0 has nothing to lease by")


class Remote:
    """An object whose methods are called as a Ray actor's are; it counts them and may fail for a while."""

    def __init__(self, target, failures=0):
        self.target, self.failures, self.called = target, failures, Counter()

    def __getattr__(self, name):
        return type("Method", (), {"remote": staticmethod(lambda *args, **kwargs: self._call(name, args, kwargs))})

    def _call(self, name, args, kwargs):
        async def answer():
            await asyncio.sleep(0)
            return result

        self.called[name] += 1
        result = None
        if name == "acquire_server" and self.failures:
            self.failures -= 1
            return self._refusal()
        result = getattr(self.target, name)(*args, **kwargs)
        # verl's client does not await a release
        return answer() if name != "release_server" else None

    async def _refusal(self):
        raise RuntimeError("No available servers in load balancer")


class Engine:
    """A server that answers at once, or fails."""

    def __init__(self, error=None):
        self.error = error
        self.generate = self

    async def remote(self, **_):
        if self.error:
            raise self.error
        return TokenOutput(token_ids=[1])


def verls_client(balancer=None, cls=LLMServerClient, **rollout):
    settings = {"name": "vllm", "n": 32} | rollout
    config = OmegaConf.create({"data": {"train_batch_size": 8}, "actor_rollout_ref": {"rollout": settings}})
    return cls(config, balancer)


def leases(failures=0, servers=("a", "b"), engine=None, **rollout):
    """A leasing client, and verl's own balancer over some servers."""
    balancer = Remote(
        router.GlobalRequestLoadBalancer({name: engine or f"handle of {name}" for name in servers}), failures
    )
    return LeasingClient(verls_client(balancer, **rollout)), balancer


def load(balancer):
    return dict(balancer.target._inflight_requests)


async def acquire(leasing, prompt, *requests):
    """Acquire for several rollouts of a prompt together, as an agent loop does; return the servers' names."""
    answers = await asyncio.gather(*(leasing._acquire_server(each, prompt_ids=prompt) for each in requests))
    assert all(handle == f"handle of {server}" for server, handle in answers)
    return [server for server, _ in answers]


def test_rollouts_of_a_prompt_ask_once_and_the_last_of_them_tells():
    async def scenario():
        leasing, balancer = leases()
        servers = set(await acquire(leasing, [1, 2], "r0", "r1", "r2"))
        assert len(servers) == 1 and balancer.called["acquire_server"] == 1
        (server,) = servers
        for request in ("r1", "r0"):
            leasing._release_server(server, request)
            assert load(balancer)[server] == 1
        leasing._release_server(server, "r2")
        assert load(balancer)[server] == 0
        assert not leasing._open and not leasing._of_request

    asyncio.run(scenario())


def test_other_prompts_and_large_groups_ask_anew_and_go_to_the_least_loaded_server():
    async def scenario():
        leasing, balancer = leases(n=1024)
        (first,) = await acquire(leasing, [1], "p")
        (second,) = await acquire(leasing, [2], "q")
        assert {first, second} == {"a", "b"}
        requests = [f"r{i}" for i in range(2 * ROLLOUTS_A_LEASE)]
        servers = await acquire(leasing, [3], *requests)
        assert Counter(servers) == {"a": ROLLOUTS_A_LEASE, "b": ROLLOUTS_A_LEASE}
        assert load(balancer) == {"a": 2, "b": 2}
        for request, server in zip(["p", "q", *requests], [first, second, *servers], strict=True):
            leasing._release_server(server, request)
        assert load(balancer) == {"a": 0, "b": 0} and not leasing._open

    asyncio.run(scenario())


@pytest.mark.parametrize(("n", "servers", "asked"), [(4, 1, 1), (4, 2, 2), (16, 2, 1), (4, 16, 4)])
def test_few_rollouts_for_many_servers_share_less(n, servers, asked):
    # 8 prompts a step: eight leases a server at least, and no more rollouts in one than that leaves
    async def scenario():
        leasing, balancer = leases(servers=[f"s{i}" for i in range(servers)], n=n)
        await acquire(leasing, [1], "r0", "r1", "r2", "r3")
        assert balancer.called["acquire_server"] == asked
        assert balancer.called["get_all_servers"] == 1

    asyncio.run(scenario())


def test_a_prompt_met_again_after_its_rollouts_ended_is_asked_for_anew():
    async def scenario():
        leasing, balancer = leases()
        for request in ("r0", "r1"):
            (server,) = await acquire(leasing, [1], request)
            leasing._release_server(server, request)
        assert balancer.called["acquire_server"] == 2

    asyncio.run(scenario())


def test_a_failure_reaches_every_rollout_that_waited_and_none_after_it():
    async def scenario():
        leasing, _ = leases(failures=1)
        answers = await asyncio.gather(
            *(leasing._acquire_server(each, prompt_ids=[1]) for each in ("r0", "r1")), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["No available servers in load balancer"] * 2
        assert len(await acquire(leasing, [1], "r2")) == 1

    asyncio.run(scenario())


def test_a_cancelled_rollout_leaves_the_others_their_server_and_does_not_keep_it():
    async def scenario():
        leasing, balancer = leases()
        await acquire(leasing, [2], "warm")
        first, second = (asyncio.create_task(leasing._acquire_server(each, prompt_ids=[1])) for each in ("r0", "r1"))
        await asyncio.sleep(0)
        first.cancel()
        server, _ = await second
        with pytest.raises(asyncio.CancelledError):
            await first
        leasing._release_server(server, "r1")
        assert sum(load(balancer).values()) == 1

    asyncio.run(scenario())


def test_a_server_that_comes_when_all_were_cancelled_is_released():
    async def scenario():
        leasing, balancer = leases()
        await acquire(leasing, [2], "warm")
        waiting = [asyncio.create_task(leasing._acquire_server(each, prompt_ids=[1])) for each in ("r0", "r1")]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert balancer.called["acquire_server"] == 2
        assert sum(load(balancer).values()) == 1
        assert list(leasing._of_request) == ["warm"]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [None, RuntimeError("the engine died")])
def test_verls_generate_releases_the_lease_whether_or_not_the_engine_fails(error):
    async def scenario():
        leasing, balancer = leases(engine=Engine(error))
        made = await asyncio.gather(
            *(leasing.generate(each, prompt_ids=[1], sampling_params={}) for each in ("r0", "r1")),
            return_exceptions=True,
        )
        assert all(one is error if error else one.token_ids == [1] for one in made)
        assert balancer.called["acquire_server"] == 1 and sum(load(balancer).values()) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("rollout", "leased"),
    [
        ({}, True),
        ({"router_config_path": None}, True),
        ({"router_config_path": "my.yaml"}, False),
        ({"full_determinism": True}, False),
    ],
)
def test_servers_are_leased_where_verl_chooses_them_by_load(rollout, leased):
    client = verls_client(**rollout)
    assert isinstance(with_leases(client), LeasingClient) is leased
    assert leased or with_leases(client) is client
    other = verls_client(cls=FullyAsyncLLMServerClient)
    assert with_leases(other) is other


def test_the_shared_loop_of_a_worker_leases_its_servers(monkeypatch):
    made = []
    monkeypatch.setattr(agent_loop, "SingleTurnAgentLoop", lambda **kwargs: made.append(kwargs) or "loop")
    worker = object.__new__(agent_loop.FastWorker)
    worker._single_turn, worker.llm_client = None, verls_client()
    worker.config = worker.llm_client.config
    worker.tokenizer = worker.processor = worker.hf_model_type = worker.dataset_cls = None
    assert worker._single_turn_loop() == worker._single_turn_loop() == "loop"
    (kwargs,) = made
    assert isinstance(kwargs["server_manager"], LeasingClient)
