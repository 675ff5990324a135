"""What every allocator is told before the run: sizes, budget and pace, checked in one place."""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Any

from verl_pods_cero.errors import OptionError, nearest

SCHEDULES = ("round", "epoch")


# Fields that the first state files did not have.
_LATER = ("focus", "drift_noise")


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings shared by all allocators; every count of responses is in rollouts.

    Formula:
        capacity of a round C = batch_prompts n (schedule round) or num_prompts n_max (schedule epoch), unless
        it is given.

    Units:
        num_prompts M: rows of the data set. budget B, n, n_max, capacity: rollouts, multiples of unit.
        unit g: rollouts that are handed out together, at least 2 because a group of one has no baseline.
        rounds K. batch_prompts: prompts in a training batch. n: rollouts of a prompt in a plain run.
        n_max: most rollouts of a prompt in a round (default n). rho: what is kept of older evidence, 0 to 1.
        lam: how soon a prompt counts as used up, > 0. prior_successes, prior_failures: Beta prior, > 0.
        price: first normalised price of a unit, 0 to 1. focus: power of the score in a priority, 0 to 100.
        drift_noise: variance of a prompt's own drift, logits^2 an epoch, 0 to 100.
        schedule: round or epoch. seed: of ties and draws.

    Raises:
        OptionError: A rule is broken; the message names the field, the rule, the value and a way out.

    Source:
        CERO, arXiv 2606.05606 (epoch schedule) and 2610.09679 (round schedule, and the figures of the example).

    >>> s = AllocatorSettings(num_prompts=8960, budget=256_000, rounds=500, batch_prompts=66, n=8, unit=4)
    >>> s.budget_units, s.capacity_units, s.n_max_units
    (64000, 132, 2)
    """

    num_prompts: int
    budget: int
    rounds: int
    batch_prompts: int
    n: int = 8
    n_max: int | None = None
    unit: int = 4
    capacity: int | None = None
    rho: float = 1.0
    lam: float = 1.0
    prior_successes: float = 1.0
    prior_failures: float = 1.0
    price: float = 0.5
    focus: float = 2.0
    drift_noise: float = 0.03
    schedule: str = "round"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ["num_prompts", "budget", "rounds", "batch_prompts", "n", "n_max", "unit", "capacity", "seed"]:
            self._check_whole(name)
        self._check_reals()
        if self.schedule not in SCHEDULES:
            self._refuse("schedule", f"be one of {', '.join(SCHEDULES)}", nearest(str(self.schedule), SCHEDULES))
        if self.n_max is not None and self.n_max < self.n:
            self._refuse("n_max", f"be at least {{n}} ({self.n})", f"use {self.n} or more, or lower n")
        if self.unit < 2:
            self._refuse("unit", "be at least 2 (a group of one rollout has no baseline)", "use 2 or more")
        for name in ("n", "n_max", "budget", "capacity"):
            self._check_multiple(name)
        self._check_sizes()

    @classmethod
    def of_run(
        cls,
        num_prompts: int,
        batch_prompts: int,
        n: int,
        *,
        steps: int | None = None,
        epochs: int = 1,
        n_max: int | None = None,
        unit: int | None = None,
        budget: int | None = None,
        rounds: int | None = None,
        capacity: int | None = None,
        headroom: float = 1.0,
        schedule: str = "round",
        **others: Any,
    ) -> AllocatorSettings:
        """Fill in what follows from a plain run of so many steps, or of so many epochs where no steps are given.

        Formula:
            steps = epochs max(1, floor(M / batch_prompts)); budget = steps batch_prompts n; n_max = n; unit = 4, or
            gcd(n, n_max) where 4 does not divide both; rounds = steps, or the epochs that these make; capacity of a
            `round` = headroom batch_prompts n where that is above 1, rounded up to whole prompts of n_max.

        What is given is taken as it is; `others` are the fields that nothing follows from.

        Raises:
            OptionError: the sizes do not fit together.

        >>> s = AllocatorSettings.of_run(num_prompts=100, batch_prompts=10, n=6, steps=25, schedule="epoch")
        >>> s.budget, s.rounds, s.unit, s.n_max
        (1500, 3, 6, 6)
        """
        per_epoch = max(1, num_prompts // max(1, batch_prompts))
        steps = steps or epochs * per_epoch
        n_max = n if n_max is None else n_max
        unit = (math.gcd(n, n_max) if n % 4 or n_max % 4 else 4) if unit is None else unit
        if capacity is None and schedule == "round" and headroom > 1.0 and n_max > 0:
            capacity = min(math.ceil(headroom * batch_prompts * n / n_max), num_prompts) * n_max
        return cls(
            num_prompts=num_prompts,
            batch_prompts=batch_prompts,
            n=n,
            n_max=n_max,
            unit=unit,
            capacity=capacity,
            budget=steps * batch_prompts * n if budget is None else budget,
            rounds=(steps if schedule == "round" else math.ceil(steps / per_epoch)) if rounds is None else rounds,
            schedule=schedule,
            **others,
        )

    @property
    def budget_units(self) -> int:
        """Budget in units."""
        return self.budget // self.unit

    @property
    def n_units(self) -> int:
        """Rollouts of a prompt in a plain run, in units."""
        return self.n // self.unit

    @property
    def group_units(self) -> int:
        """Units of every prompt served where all get alike: n, or B / (K M), rounded up, where that is more."""
        return max(self.n_units, -(-self.budget_units // (self.rounds * self.num_prompts)))

    @property
    def n_max_units(self) -> int:
        """Most rollouts of a prompt in a round, in units."""
        return (self.n if self.n_max is None else self.n_max) // self.unit

    @property
    def capacity_units(self) -> int:
        """Capacity of a round, in units."""
        if self.capacity is not None:
            return self.capacity // self.unit
        if self.schedule == "epoch":
            return self.num_prompts * self.n_max_units
        return self.batch_prompts * self.n_units

    def as_dict(self) -> dict[str, int | float | str | None]:
        """The fields by name, as the header of a state file keeps them.

        Fields that came later are left out at their defaults, so that states of before them still belong to their runs.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        fields = dataclasses.asdict(self)
        return {name: fields[name] for name in fields if name not in _LATER or fields[name] != defaults[name]}

    def _check_whole(self, name: str) -> None:
        value = getattr(self, name)
        if value is None and name in ("n_max", "capacity"):
            return
        least = 0 if name == "seed" else 1
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
            self._refuse(name, f"be a whole number, at least {least}", f"set it to {least} or more")
        object.__setattr__(self, name, int(value))

    def _check_reals(self) -> None:
        for name, most in (("rho", 1), ("price", 1), ("focus", 100), ("drift_noise", 100)):
            if not 0.0 <= self._real(name) <= most:
                self._refuse(name, f"lie between 0 and {most}", "use a number in that range")
        for name in ("lam", "prior_successes", "prior_failures"):
            if not 0.0 < self._real(name) < math.inf:
                self._refuse(name, "be positive and finite", "use 1.0 if in doubt")

    def _real(self, name: str) -> float:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            self._refuse(name, "be a number", "give one, without quotes or units")
        return float(value)

    def _check_multiple(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and value % self.unit:
            low = value // self.unit * self.unit
            fix = f"use {low} or {low + self.unit}" if low else f"use {self.unit}"
            self._refuse(name, f"be a multiple of {{unit}} ({self.unit})", f"{fix}, or change the unit")

    def _check_sizes(self) -> None:
        if self.batch_prompts > self.num_prompts:
            rule = f"be at most {{num_prompts}} ({self.num_prompts})"
            self._refuse("batch_prompts", rule, f"use {self.num_prompts} or less")
        most = self.num_prompts * self.n_max_units * self.unit
        if self.capacity is not None and self.capacity > most:
            rule = f"be at most num_prompts * n_max ({most}), which is all that a round can hold"
            self._refuse("capacity", rule, f"use {most} or less")
        reach = self.rounds * self.capacity_units * self.unit
        if self.budget > reach:
            rule = f"be at most rounds * capacity ({self.rounds} * {self.capacity_units * self.unit} = {reach})"
            self._refuse("budget", rule, f"use {reach} or less, or raise {{rounds}} or {{batch_prompts}}")

    def _refuse(self, name: str, rule: str, fix: str) -> None:
        raise OptionError(name, f"must {rule}", getattr(self, name), fix)
