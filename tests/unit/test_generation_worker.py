"""Which rollouts go through one shared loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.utils.rollout_trace import RolloutTraceConfig

from verl_pods_cero.hooks.agent_loop import VALUES, TaggingWorker
from verl_pods_cero.hooks.generation.worker import can_share_loop

SINGLE_TURN = "single_turn_agent"


def test_verls_single_turn_loop_is_shared_and_others_are_not():
    assert can_share_loop(SINGLE_TURN)
    assert "tool_agent" in _agent_loop_registry and not can_share_loop("tool_agent")
    assert not can_share_loop("no such loop")


@pytest.mark.parametrize("more", [{"name": SINGLE_TURN, "tools": "mine"}, {"_target_": "mine.Loop"}])
def test_a_loop_that_the_user_configured_is_made_as_verl_makes_it(monkeypatch, more):
    own = OmegaConf.create(_agent_loop_registry[SINGLE_TURN] | more)
    monkeypatch.setitem(_agent_loop_registry, SINGLE_TURN, own)
    assert not can_share_loop(SINGLE_TURN)


def test_traced_rollouts_have_loops_of_their_own(monkeypatch):
    monkeypatch.setattr(RolloutTraceConfig, "get_backend", lambda: "mlflow")
    assert not can_share_loop(SINGLE_TURN)


@pytest.fixture
def score(monkeypatch):
    """Return a function that has a worker score a rollout, which verl's own method leaves with the given score."""

    def scored(reward, handles):
        async def verls(_self, outputs, kwargs):
            outputs[-1].reward_score = reward

        monkeypatch.setattr(TaggingWorker.__mro__[1], "_compute_score", verls)
        worker = TaggingWorker.__new__(TaggingWorker)
        worker.reward_loop_worker_handles, worker._keys = handles, ("reward",)
        told = {}
        asyncio.run(worker._compute_score([SimpleNamespace(reward_score=None, extra_fields={})], told))
        return told

    return scored


def test_a_scorer_that_returns_none_fails_its_rollout_alone(score):
    assert score(0.5, ["a reward worker"]) == {VALUES: [0.5]}
    with pytest.raises(ValueError, match="the scorer returned None"):
        score(None, ["a reward worker"])


def test_a_reward_model_on_the_driver_scores_later(score):
    assert score(None, None) == {}
