"""Rewards for the data sets of this package: one scorer for training and validation.

verl loads it by name:

    reward.custom_reward_function.path=pkg://verl_pods_cero.rewards
    reward.custom_reward_function.name=compute_score        (verl's default)
    +reward.custom_reward_function.reward_kwargs.format_weight=0.1

Importing this package imports no scorer: each loads what it needs at its first use.
"""

from verl_pods_cero.rewards.options import RewardOptions
from verl_pods_cero.rewards.scoring import RESULT_KEYS, check_setup, compute_score

__all__ = ["RESULT_KEYS", "RewardOptions", "check_setup", "compute_score"]
