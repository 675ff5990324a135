"""The options of the plugin: a typed schema and its own rules."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from verl_pods_cero.errors import OptionError, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig

ROOT = "pods_cero"
SCHEMA_NAME = "pods_cero_schema"
ADVANTAGE_STATS = ("subset", "full_group")
CANDIDATES = ("pool", "loader")

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

    # cero, uniform, random_matched, fixed_pacing, greedy_marginal, knapsack, greso, or package.module:Class.
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

    # What is kept of older evidence when new outcomes of a prompt arrive, 0 to 1.
    rho: float = 1.0

    # How soon a prompt counts as used up, above 0.
    lam: float = 1.0

    # First price of a unit, 0 to 1.
    price: float = 0.5

    # Beta prior of the pass rates.
    prior_successes: float = 1.0
    prior_failures: float = 1.0

    # The value that says whether a rollout succeeded: a key of reward_extra_info, or "reward".
    success_key: str = "acc"

    # Success is a value of at least this; by default the value must be 0 or 1 (or -1 or 1).
    success_threshold: float | None = None

    # Writes what is known of each prompt as parquet with every checkpoint.
    dump_prompts: bool = False

    # Seed of ties and random draws.
    seed: int = 0


@dataclass
class PodsCeroOptions:
    """Everything under `pods_cero` in the configuration."""

    filter: FilterOptions = field(default_factory=FilterOptions)

    allocator: AllocatorOptions = field(default_factory=AllocatorOptions)

    # Rewards of a prompt count as equal where they differ by at most this share of the step's largest reward.
    zero_variance_tolerance: float = 1e-6

    # Shares agent loops, server leases and writes among rollouts, which verl makes anew for each of them.
    fast_generation: bool = True

    # Seconds between two looks at the generation's progress (verl: 2.0).
    poll_interval_s: float = 0.1


def schema() -> DictConfig:
    """Make the defaults that recipes take in as `pods_cero_schema`.

    The node is open (not a struct), so that a misspelt option reaches `parse`, which knows the
    nearest match, and not Hydra, which does not.
    """
    from omegaconf import OmegaConf

    node = OmegaConf.create({ROOT: OmegaConf.to_container(OmegaConf.structured(PodsCeroOptions))})
    OmegaConf.set_struct(node[ROOT], False)
    # A multirun starts a job in the process that ran the last one; each job gets its own Ray.
    callback = {"_target_": "verl_pods_cero.hooks.ray_session.RayPerJob"}
    node.hydra = {"callbacks": {ROOT: callback}}
    return node


def parse(config: DictConfig) -> PodsCeroOptions | None:
    """Read `config.pods_cero` into typed options and check the rules that need no other option.

    Returns:
        The options, or None where the configuration has no `pods_cero` node (a stock verl run).

    Raises:
        OptionError: an unknown option (with its nearest match), a value of another type, or a broken rule.

    >>> from omegaconf import OmegaConf
    >>> parse(OmegaConf.create({"pods_cero": {"filter": {"enable": True, "keep": 4}}})).filter.keep
    4
    >>> parse(OmegaConf.create({"trainer": {}})) is None
    True
    """
    from omegaconf import OmegaConf

    if ROOT not in config:
        return None
    node = OmegaConf.to_container(config[ROOT], resolve=True)
    _refuse_unknown(PodsCeroOptions, node, ROOT)
    options = cast(PodsCeroOptions, _typed(cast("dict[str, Any]", node)))
    _check_filter(options.filter)
    _check_allocator(options.allocator)
    if options.poll_interval_s <= 0:
        raise OptionError(f"{ROOT}.poll_interval_s", "must be above 0 seconds", options.poll_interval_s, "use 0.1")
    return options


def _refuse_unknown(schema_class: type, node: object, path: str) -> None:
    if not isinstance(node, dict):
        raise OptionError(path, "must be a group of options", node, f"write them as {path}.<option>=<value>")
    known = {f.name: f for f in fields(schema_class)}
    for name, value in node.items():
        if name not in known:
            raise OptionError(f"{path}.{name}", "is no option of the plugin", value, nearest(name, known))
        default = known[name].default_factory
        if isinstance(default, type) and is_dataclass(default):
            _refuse_unknown(default, value, f"{path}.{name}")


def _typed(node: dict[str, Any]) -> object:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        merged = OmegaConf.merge(OmegaConf.structured(PodsCeroOptions), node)
        return OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        name = f"{ROOT}.{error.full_key}" if error.full_key else ROOT
        received = OmegaConf.select(OmegaConf.create({ROOT: node}), name)
        rule = str(error).splitlines()[0]
        raise OptionError(
            name, f"has a type ({rule})", received, "give a value of the type that the option has"
        ) from error


def _check_filter(options: FilterOptions) -> None:
    path = f"{ROOT}.filter"
    if not options.enable:
        for name in ("keep", "keep_fraction"):
            if (value := getattr(options, name)) is not None:
                raise OptionError(
                    f"{path}.{name}",
                    f"has no effect while {path}.enable=false",
                    value,
                    f"set {path}.enable=true, or take {path}.{name} out",
                )
        return
    if options.advantage_stats not in ADVANTAGE_STATS:
        raise OptionError(
            f"{path}.advantage_stats",
            "names no statistics",
            options.advantage_stats,
            nearest(options.advantage_stats, ADVANTAGE_STATS),
        )
    if not options.ranking_key:
        raise OptionError(f"{path}.ranking_key", "must name a value", options.ranking_key, "use reward or acc")
    if options.seed < 0:
        raise OptionError(f"{path}.seed", "must not be negative", options.seed, "use 0")
    if options.min_prompts < 0:
        raise OptionError(f"{path}.min_prompts", "must not be negative", options.min_prompts, "use 0")
    if options.min_prompts and not options.drop_zero_variance:
        raise OptionError(
            f"{path}.min_prompts",
            f"has no effect while {path}.drop_zero_variance=false",
            options.min_prompts,
            f"set {path}.drop_zero_variance=true, or take {path}.min_prompts out",
        )


def _check_allocator(options: AllocatorOptions) -> None:
    path = f"{ROOT}.allocator"
    if not options.enable:
        if options.budget is not None:
            raise OptionError(
                f"{path}.budget",
                f"has no effect while {path}.enable=false",
                options.budget,
                f"set {path}.enable=true, or take {path}.budget out",
            )
        return
    if options.candidates not in CANDIDATES:
        fix = nearest(options.candidates, CANDIDATES)
        raise OptionError(f"{path}.candidates", "names no source of prompts", options.candidates, fix)
    if options.schedule == "epoch" and options.candidates == "loader":
        raise OptionError(
            f"{path}.candidates",
            f"must be pool with {path}.schedule=epoch: a round is a plan for the whole data set",
            options.candidates,
            f"set {path}.candidates=pool",
        )
    if options.success_key == "reward" and options.success_threshold is None:
        raise OptionError(
            f"{path}.success_key",
            "cannot be the reward alone: a shaped score is no outcome, and CERO counts successes and failures",
            options.success_key,
            f"set {path}.success_threshold to the reward from which a rollout counts as a success, or use acc",
        )
