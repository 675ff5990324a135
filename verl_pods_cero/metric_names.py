"""Every metric that the plugin logs, by name, with its definition: for trainers, simulated runs and the docs."""

from __future__ import annotations

from collections.abc import Mapping

FILTER_METRICS: Mapping[str, str] = {
    "pods/rollouts_submitted": "rollouts (sessions) that were asked for in the step",
    "pods/rollouts_returned": "of these, the ones that came back; engine, agent loop or scorer lost the others",
    "pods/rollouts_generated": "of the ones that came back, those that have every value that the run needs",
    "pods/rollouts_kept": "rollouts that the policy was updated on",
    "pods/rollouts_unscored": "rollouts that count as failed: a value that the run needs is missing or not finite",
    "pods/prompts": "prompts of the step that came back with a rollout",
    "pods/prompts_dropped_degenerate": "prompts dropped by drop_zero_variance",
    "pods/prompts_dropped_single": "prompts dropped because one rollout is no group",
    "pods/reward_mean_generated": "mean reward of the generated rollouts",
    "pods/reward_mean_kept": "mean reward of the kept rollouts",
    "pods/reward_variance_generated": "mean over prompts of the reward's variance among generated rollouts",
    "pods/reward_variance_kept": "mean over prompts of the reward's variance among kept rollouts",
    "pods/zero_variance_fraction": "share of prompts whose rollouts all have one ranking value",
    "pods/all_pass_fraction": "share of prompts whose rollouts all succeed (scorers that report acc)",
    "pods/all_fail_fraction": "share of prompts whose rollouts all fail (scorers that report acc)",
    "pods/top_kept": "mean over prompts of k, the rollouts kept from the high end of the ranking",
    "pods/response_length_generated": "mean tokens of a generated response row",
    "pods/response_length_kept": "mean tokens of a kept response row",
    "pods/rows_padded": "rows added so that every rank and mini-batch gets as many",
    "pods/update_skipped": "1 if nothing was kept and the step made no update, else 0",
    "timing_s/pods_select": "seconds to read the step's values, choose, and drop rows",
}

ALLOCATION_METRICS: Mapping[str, str] = {
    "cero/prompts": "prompts that got rollouts in this step",
    "cero/rollouts": "rollouts handed out for this step",
    "cero/rollouts_returned": "of these, the ones that came back, as pods/rollouts_returned; without the filter",
    "cero/rollouts_unscored": "rollouts that count as failed, as pods/rollouts_unscored; without the filter",
    "cero/prompts_dropped_single": "prompts dropped because one rollout is no group; without the filter",
    "cero/effective_prompt_ratio": "share of the prompts of the round closed last that had both successes and failures",
    "cero/calibration_mae": "mean absolute difference of predicted and observed pass rates in that round",
    "cero/calibration_brier": "mean squared difference of the predicted pass rate and each outcome in that round",
    "cero/round": "rounds closed so far",
    "cero/empty_rounds": "of these, the ones in which no prompt got rollouts",
    "cero/budget_spent": "rollouts handed out since the run began",
    "cero/budget_left": "rollouts of the budget that are left",
    "cero/price": "the price mu of a unit (cero, random_matched, fixed_pacing)",
    "cero/theta_p10": "first decile over prompts of the dual theta (cero, random_matched, fixed_pacing)",
    "cero/theta_p50": "median over prompts of theta",
    "cero/theta_p90": "last decile over prompts of theta",
    "cero/q_p10": "first decile over prompts of the informativeness q",
    "cero/q_p50": "median over prompts of q",
    "cero/q_p90": "last decile over prompts of q",
    "cero/exposures_p10": "first decile over prompts of the rollouts that a prompt has had",
    "cero/exposures_p50": "median over prompts of the rollouts that a prompt has had",
    "cero/exposures_p90": "last decile over prompts of the rollouts that a prompt has had",
    "cero/explore_easy": "probability of trying an easy prompt that is being skipped (greso)",
    "cero/explore_hard": "probability of trying a hard prompt that is being skipped (greso)",
    "cero/drift": "logits per epoch by which pass rates rise, as learnt so far (prioritized)",
    "cero/prior_mean": "mean of the logits of pass rates of prompts not met yet, as learnt so far (prioritized)",
    "cero/prior_sd": "standard deviation of these logits (prioritized)",
    "cero/pilot_stopped_fraction": "share of the step's prompts that got no more than their first rollouts (pilot)",
    "timing_s/cero_pilot": "seconds until the first rollouts were scored and the others submitted (pilot)",
    "timing_s/cero_plan": "seconds to plan the step that follows",
    "timing_s/cero_update": "seconds to take in the outcomes and move duals and price",
}

# Allocators are used without a dashboard too; there, these have shorter names.
_LONGER = {"effective_groups": "effective_prompt_ratio", "spent": "budget_spent", "remaining": "budget_left"}


def allocation_metrics(numbers: Mapping[str, float]) -> dict[str, float]:
    """Name an allocator's numbers as `ALLOCATION_METRICS` does; those of your own allocator keep theirs."""
    return {f"cero/{_LONGER.get(name, name)}": value for name, value in numbers.items()}
