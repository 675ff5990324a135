"""What a user calls the fields of the core: for `errors.option_names`."""

from __future__ import annotations

from dataclasses import fields

from verl_pods_cero.options.schema import ROOT, AllocatorOptions, FilterOptions

FILTER_NAMES = {each.name: f"{ROOT}.filter.{each.name}" for each in fields(FilterOptions)}
ALLOCATOR_NAMES = {
    **{each.name: f"{ROOT}.allocator.{each.name}" for each in fields(AllocatorOptions)},
    "n": "actor_rollout_ref.rollout.n",
    "steps": "trainer.total_training_steps",
    "batch_prompts": "data.train_batch_size",
    "num_prompts": "the number of rows in data.train_files",
}
