"""A scorer may not end the process that it runs in."""

from __future__ import annotations

import asyncio
import inspect
import sys

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo import reward

from verl_pods_cero.hooks.patches import SCORER_LOADER
from verl_pods_cero.hooks.scorer_exit import guarded


def test_what_a_scorer_returns_and_raises_passes_through():
    assert guarded(lambda text, weight=1: weight * len(text))("ab", weight=3) == 6
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 / 0)()


def test_a_scorer_that_is_awaited_stays_one_and_may_not_exit_either():
    async def scorer() -> float:
        await asyncio.sleep(0)
        sys.exit(3)

    assert inspect.iscoroutinefunction(guarded(scorer))
    with pytest.raises(RuntimeError, match=r"called sys\.exit\(3\)"):
        asyncio.run(guarded(scorer)())


@pytest.mark.parametrize("ours", [True, False])
def test_scorers_are_guarded_as_verl_loads_them_in_runs_that_have_our_options(tmp_path, ours):
    assert SCORER_LOADER.replaced, "verl's module was imported, and the plugin is there"
    (tmp_path / "scorer.py").write_text("import sys\ndef compute_score(**_):\n    sys.exit(1)\n")
    custom = {"path": str(tmp_path / "scorer.py"), "name": "compute_score", "reward_kwargs": {}}
    config = {"reward": {"custom_reward_function": custom}} | ({"pods_cero": {}} if ours else {})
    scorer = reward.get_custom_reward_fn(OmegaConf.create(config))
    with pytest.raises(RuntimeError if ours else SystemExit):
        scorer(data_source="", solution_str="", ground_truth="")
