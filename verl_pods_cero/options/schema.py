"""The options of the plugin: their names, types and defaults, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from verl_pods_cero.errors import OptionError, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig

ROOT = "pods_cero"
SCHEMA_NAME = "pods_cero_schema"

# Our trainer modes and the verl mode that each one extends.
BASE_MODES = {"pods_cero_sync": "sync"}


@dataclass
class FilterOptions:
    """Which of the generated rollouts the policy is updated on (PODS)."""

    # Turns the filter on.
    enable: bool = False

    # Rollouts kept of each prompt (m). Give this or keep_fraction.
    keep: int | None = None

    # Kept share of actor_rollout_ref.rollout.n, in (0, 1]. Give this or keep.
    keep_fraction: float | None = None

    # max_variance, max_reward, random, percentile, or package.module:function.
    rule: str = "max_variance"

    # What the rule ranks by: "reward" or a key of the scorer's reward_extra_info, such as "acc".
    ranking_key: str = "reward"

    # Advantages over the kept rollouts ("subset") or over all generated ones ("full_group").
    advantage_stats: str = "subset"

    # Drops prompts whose rollouts all earned the same ranking value.
    drop_zero_variance: bool = False

    # With drop_zero_variance: prompts that a step keeps at least, degenerate ones if need be.
    min_prompts: int = 0

    # Seed of the random rule.
    seed: int = 0


@dataclass
class AllocatorOptions:
    """Which prompts get rollouts, and how many, under a budget for the whole run (CERO)."""

    # Turns the allocator on.
    enable: bool = False

    # cero, prioritized, thompson, greso, knapsack, greedy_marginal, uniform, random_matched, fixed_pacing, or
    # package.module:Class.
    name: str = "cero"

    # A round is a training step ("round") or a pass over the data ("epoch").
    schedule: str = "round"

    # Rows to choose from: the whole data set ("pool"), or verl's data loader in its order ("loader").
    candidates: str = "pool"

    # Rollouts for the whole run; by default what plain GRPO would generate in as many steps.
    budget: int | None = None

    # Rounds (K); by default trainer.total_training_steps ("round") or trainer.total_epochs ("epoch").
    rounds: int | None = None

    # Most rollouts of a prompt in a round; by default actor_rollout_ref.rollout.n.
    n_max: int | None = None

    # Rollouts that are handed out together; by default 4, or n where 4 does not divide it.
    unit: int | None = None

    # Most rollouts of a round; by default data.train_batch_size * n ("round") or all rows * n_max ("epoch").
    capacity: int | None = None

    # Rollouts of each prompt that come first in a step; the rest go to the prompts whose first ones disagree.
    pilot: int | None = None

    # What is kept of older evidence when new outcomes of a prompt arrive, 0 to 1.
    rho: float = 1.0

    # How soon a prompt counts as used up, above 0.
    lam: float = 1.0

    # First price of a unit, 0 to 1.
    price: float = 0.5

    # prioritized: power of a prompt's score in its priority, 0 to 100; 0 serves all prompts alike.
    focus: float = 2.0

    # prioritized: variance of a prompt's own drift, logits^2 per epoch, 0 to 100.
    drift_noise: float = 0.03

    # Beta prior of the pass rates.
    prior_successes: float = 1.0
    prior_failures: float = 1.0

    # The value that says whether a rollout succeeded: a key of reward_extra_info, or "reward".
    success_key: str = "acc"

    # Success is a value of at least this; by default the value must be 0 or 1 (or -1 or 1).
    success_threshold: float | None = None

    # Outcomes of before the run: parquet with row, successes and failures, as dump_prompts writes it.
    warm_start: str | None = None

    # Writes what is known of each prompt as parquet with every checkpoint.
    dump_prompts: bool = False

    # Seed of ties and random draws.
    seed: int = 0


@dataclass
class PodsCeroOptions:
    """Everything under `pods_cero` in the configuration."""

    filter: FilterOptions = field(default_factory=FilterOptions)

    allocator: AllocatorOptions = field(default_factory=AllocatorOptions)

    # Shares agent loops, server leases and writes among rollouts, which verl makes anew for each of them.
    fast_generation: bool = True

    # Seconds between two looks at the generation's progress (verl: 2.0).
    poll_interval_s: float = 0.1

    # A run ends after three steps in a row of which more than this share of the rollouts failed, or all of them.
    max_failed_fraction: float = 0.5

    # Rewards of a prompt count as equal where they differ by at most this share of the largest of them.
    zero_variance_tolerance: float = 1e-6


@dataclass(frozen=True)
class Run:
    """What a check looks at: verl's whole configuration, and what was read from it."""

    config: DictConfig
    options: PodsCeroOptions
    use_critic: bool = False
    use_reference: bool = False


def schema() -> DictConfig:
    """Make the defaults that recipes take in as `pods_cero_schema`.

    The node is open (not a struct), so that a misspelt option reaches `parse`, which knows the
    nearest match, and not Hydra, which does not.
    """
    from omegaconf import OmegaConf

    node = OmegaConf.create({ROOT: OmegaConf.to_container(OmegaConf.structured(PodsCeroOptions))})
    OmegaConf.set_struct(node[ROOT], False)
    return node


def parse(config: DictConfig) -> PodsCeroOptions | None:
    """Read `config.pods_cero` into typed options; `checks` has the rules of their values.

    Returns:
        The options, or None where the configuration has no `pods_cero` node (a stock verl run).

    Raises:
        OptionError: an unknown option (with its nearest match), or a value of another type.

    >>> from omegaconf import OmegaConf
    >>> parse(OmegaConf.create({"pods_cero": {"filter": {"enable": True, "keep": 4}}})).filter.keep
    4
    >>> parse(OmegaConf.create({"trainer": {}})) is None
    True
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if ROOT not in config:
        return None
    options = OmegaConf.structured(PodsCeroOptions)
    try:
        node = config[ROOT]
        given = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    except OmegaConfBaseException as error:
        rule = f"must have values that can be worked out ({str(error).splitlines()[0]})"
        raise OptionError(f"{ROOT}", rule, "an interpolation", "correct the name in ${...}") from error
    _fill(options, given, ROOT)
    return cast(PodsCeroOptions, OmegaConf.to_object(options))


def _fill(options: DictConfig, given: object, path: str) -> None:
    """Set the options of a group, each under its own name, so that an error can say which it is."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not isinstance(given, dict):
        raise OptionError(path, "must be a group of options", given, f"write them as {path}.<option>=<value>")
    known = {str(name) for name in options}
    for name, value in given.items():
        option = f"{path}.{name}"
        if name not in known:
            raise OptionError(option, "is no option of the plugin", value, nearest(str(name), known))
        if OmegaConf.is_config(options[name]):
            _fill(options[name], value, option)
            continue
        try:
            options[name] = value
        except (OmegaConfBaseException, OverflowError) as error:
            kind, optional = _kind(cast(type, OmegaConf.get_type(options)), name)
            raise OptionError(option, f"must be {kind}{optional}", value, f"give {kind}") from error


def _kind(group: type, name: str) -> tuple[str, str]:
    """Word the type of an option, and whether it may be null."""
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    kind, _, none = str(group.__annotations__[name]).partition(" | ")
    return words[kind], " or null" if none else ""
