"""What the plugin logs of a step, computed from its rollouts; `verl_pods_cero.metric_names` has the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
)

from verl_pods_cero.core.groups import variances
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.hooks.step import Step


def filter_metrics(step: Step) -> dict[str, float]:
    """Compute the `pods/...` metrics of `FILTER_METRICS`: four of them where no rollout had every value."""
    rollouts, kept = step.rollouts, step.kept
    always = {
        "pods/rollouts_submitted": float(step.submitted_rollouts),
        "pods/rollouts_returned": float(step.returned),
        "pods/rollouts_unscored": float(step.unscored),
        "pods/update_skipped": float(not step.rows),
    }
    if rollouts is None or kept is None:
        return always
    index, sessions = rollouts.index, kept.sessions
    rewards, mask = index.grouped(rollouts.rewards)
    kept_mask = index.grouped(sessions.astype(np.float64))[0] > 0
    metrics = {
        "pods/rollouts_generated": len(sessions),
        "pods/rollouts_kept": sessions.sum(),
        "pods/prompts": len(kept.degenerate),
        "pods/prompts_dropped_degenerate": kept.dropped_degenerate.sum(),
        "pods/prompts_dropped_single": kept.dropped_single.sum(),
        "pods/reward_mean_generated": _mean(rollouts.rewards),
        "pods/reward_mean_kept": _mean(rollouts.rewards[sessions]),
        "pods/reward_variance_generated": _mean(variances(rewards, mask)),
        "pods/reward_variance_kept": _mean(variances(rewards, kept_mask)[kept_mask.any(axis=1)]),
        "pods/zero_variance_fraction": _mean(kept.degenerate),
        "pods/top_kept": _mean(kept.top),
        "pods/response_length_generated": _mean(rollouts.response_length),
        "pods/response_length_kept": _mean(rollouts.response_length[sessions[index.session_of_row]]),
        "pods/rows_padded": step.rows_padded,
    }
    if (outcomes := rollouts.outcomes) is not None:
        passed = index.grouped((outcomes > 0).astype(np.float64))[0].sum(axis=1)
        metrics["pods/all_pass_fraction"] = _mean(passed == index.sizes)
        metrics["pods/all_fail_fraction"] = _mean(passed == 0)
    return always | {name: float(value) for name, value in metrics.items()}


def unfiltered_metrics(step: Step) -> dict[str, float]:
    """Compute what an allocator without a filter leaves out of its update."""
    single = 0 if step.kept is None else step.kept.dropped_single.sum()
    return {
        "cero/prompts_dropped_single": float(single),
        "cero/rollouts_returned": float(step.returned),
        "cero/rollouts_unscored": float(step.unscored),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def dashboard_metrics(
    rollouts: Rollouts, timing_raw: dict[str, float], n_gpus: int, *, rewards_are_scores: bool
) -> dict[str, Any]:
    """Compute verl's own keys over every generated rollout, by verl's own functions.

    verl computes them over the rows that are left. A dashboard that compares a filtered run with a
    plain one needs the same population in both.

    Args:
        rollouts: everything that was generated in the step.
        timing_raw: verl's timers of the step.
        n_gpus: GPUs to share the throughput by.
        rewards_are_scores: no KL penalty was taken off the rewards (it is not known of dropped rows).
    """
    scores = rollouts.rewards[rollouts.index.session_of_row].astype(np.float32)
    prompts, responses = torch.from_numpy(rollouts.prompt_length), torch.from_numpy(rollouts.response_length)
    rows = len(scores)
    score = torch.from_numpy(scores)[:, None]

    def of_width(lengths: torch.Tensor) -> torch.Tensor:
        # verl takes the width of these two from their shape and reads nothing else of them.
        return torch.zeros(1, 1).expand(rows, int(lengths.max()))

    batch = DataProto(
        batch=TensorDict(
            {
                "token_level_scores": score,
                "token_level_rewards": score,
                "advantages": torch.zeros(rows, 1),
                "returns": torch.zeros(rows, 1),
                "response_mask": torch.ones(rows, 1),
                "prompts": of_width(prompts),
                "responses": of_width(responses),
                "prompt_length": prompts.float(),
                "response_length": responses.float(),
            },
            batch_size=rows,
        ),
        non_tensor_batch={"__num_turns__": rollouts.turns},
        meta_info={"global_token_num": (prompts + responses).tolist()},
    )
    trained_only = ("critic/advantages/", "critic/returns/") + (() if rewards_are_scores else ("critic/rewards/",))
    data = compute_data_metrics(batch=batch, use_critic=False)
    metrics = {name: value for name, value in data.items() if not name.startswith(trained_only)}
    for statistic in ("mean", "max", "min"):
        metrics[f"training/num_turns/{statistic}"] = metrics[f"num_turns/{statistic}"]
    timing = compute_timing_metrics(batch=batch, timing_raw=timing_raw)
    metrics.update({name: value for name, value in timing.items() if name == "timing_per_token_ms/gen"})
    if "step" in timing_raw:
        metrics.update(compute_throughout_metrics(batch=batch, timing_raw=timing_raw, n_gpus=n_gpus))
    return metrics
