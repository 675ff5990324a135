"""The books that every allocator keeps: budget, rounds, exposures, posteriors, and what they show for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.allocators import Allocation
from verl_pods_cero.core.arrays import Floats, Ints, SmallInts
from verl_pods_cero.core.pass_rates import Calibration, PassRates, checked_indices, checked_outcomes, summed_outcomes
from verl_pods_cero.core.quantiles import quantiles
from verl_pods_cero.core.settings import AllocatorSettings


class BudgetedAllocator(ABC):
    """An allocator that decides only whom to serve; the rest of the protocol is here.

    A subclass says in `_choose` which prompts get how many units in this call, within `_room`, and may add
    arrays to the state and numbers to the metrics. Random draws come from `_generator`, which depends on the
    seed and on how far the run is, so that a resumed run draws what the unbroken one would have drawn.

    Memory:
        28 bytes a prompt here: a, b, q (float64) and exposures (int32, in units).
    """

    headroom: float = 1.0
    """Capacity of a `round` that none is given for, over the rollouts of a plain step."""

    learns: bool = True
    """Whether outcomes decide whom it serves."""

    # Schedules in which a round spends no more than an even share of what is left.
    _paced: tuple[str, ...] = ()

    def __init__(self, settings: AllocatorSettings) -> None:
        self.settings = settings
        prior = (float(settings.prior_successes), float(settings.prior_failures))
        self.rates = PassRates.start(settings.num_prompts, prior, settings.rho)
        self.exposures: SmallInts = np.zeros(settings.num_prompts, dtype=np.int32)
        self.round = 0
        self.empty_rounds = 0
        self._spent = 0
        self._open_rows: Ints = np.zeros(0, dtype=np.int64)
        self._open_units: Ints = np.zeros(0, dtype=np.int64)
        self._open_calls = 0
        self._open_groups = np.zeros(2, dtype=np.int64)
        self._open_calibration = Calibration()
        self._closed: dict[str, float] = {"prompts": 0.0, "rollouts": 0.0}

    @abstractmethod
    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        """Prompts and their units for this call, both (k,)."""

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Return the least and the most rollouts of a prompt that is served, but for one that a limit cuts short."""
        return settings.unit, settings.n_max_units * settings.unit

    @classmethod
    def takes_everyone(cls, settings: AllocatorSettings, offered: int) -> bool:
        """Say whether a round gives each of `offered` prompts all that a prompt can get, whatever was learnt.

        Formula:
            offered * (most units of a prompt) <= units of a round.
        """
        units = settings.capacity_units
        if settings.schedule in cls._paced:
            units = min(units, -(-settings.budget_units // settings.rounds))
        return offered * cls.group_sizes(settings)[1] <= units * settings.unit

    @property
    def spent(self) -> int:
        """Rollouts handed out so far, those of the open round included."""
        return self._spent * self.settings.unit

    @property
    def remaining(self) -> int:
        """Rollouts of the budget that are left."""
        return self.settings.budget - self.spent

    @property
    def room(self) -> int:
        """Rollouts that the open round may still get; at 0 the batch is full."""
        return self._room * self.settings.unit

    @property
    def finished(self) -> bool:
        """Whether the budget or the rounds are used up."""
        return self.remaining == 0 or self.round >= self.settings.rounds

    @property
    def _room(self) -> int:
        if self.finished:
            return 0
        left = self.settings.budget_units - self._spent
        return max(0, min(left, self._round_limit() - int(self._open_units.sum())))

    def _round_limit(self) -> int:
        if self.settings.schedule not in self._paced:
            return self.settings.capacity_units
        left = self.settings.budget_units - self._spent + int(self._open_units.sum())
        return min(self.settings.capacity_units, -(-left // max(1, self.settings.rounds - self.round)))

    def _fresh(self, candidates: Ints) -> Ints:
        """Return the candidates that this round has not served, each once, in their order."""
        rows = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
        return rows[~np.isin(rows, self._open_rows)] if len(self._open_rows) else rows

    def predict(self, indices: ArrayLike) -> Floats:
        """Pass rates expected now of the prompts at `indices`, (k,)."""
        return self.rates.predict(indices)

    def plan(self, candidates: ArrayLike | None = None) -> Allocation:
        """Hand out rollouts: to any prompt, or only to `candidates`, in whose order the answer then is.

        A round may be planned in several calls, each adding to it; `advance` closes it.
        """
        rows = None if candidates is None else checked_indices(self.settings.num_prompts, candidates)
        if self.finished:
            return Allocation.empty()
        indices, units = self._choose(rows)
        self._open_calls += 1
        served = units > 0
        indices, units = indices[served], units[served]
        np.add.at(self.exposures, indices, units.astype(np.int32))
        self._spent += int(units.sum())
        self._open_rows = np.concatenate([self._open_rows, indices])
        self._open_units = np.concatenate([self._open_units, units])
        return Allocation(indices, units * self.settings.unit)

    def reassign(self, indices: ArrayLike, rollouts: ArrayLike) -> None:
        """Say that prompts of the open round got so many rollouts, in place of what was planned for them.

        Raises:
            ValueError: a prompt is not of the open round, or other rollouts were given than were planned for them.
        """
        rows = checked_indices(self.settings.num_prompts, indices)
        units = np.asarray(rollouts, dtype=np.int64) // self.settings.unit
        order = np.argsort(self._open_rows, kind="stable")
        place = np.searchsorted(self._open_rows, rows, sorter=order)
        if len(rows) and (place.max() >= len(order) or (self._open_rows[order[place]] != rows).any()):
            raise ValueError("rollouts were given to a prompt that the open round does not serve")
        changes = units - self._open_units[order[place]]
        if changes.sum():
            raise ValueError(f"{changes.sum() * self.settings.unit:+d} rollouts were given beside those planned")
        self._open_units[order[place]] = units
        self.exposures[rows] += changes.astype(np.int32)

    def observe(self, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike) -> None:
        """Take in outcomes, in rollouts; what was predicted for them is scored before the posterior moves."""
        rows, wins, losses = checked_outcomes(self.settings.num_prompts, indices, successes, failures)
        self._open_calibration += Calibration.of(self.predict(rows), wins, losses)
        self._open_groups += [np.count_nonzero((wins > 0) & (losses > 0)), np.count_nonzero(wins + losses)]
        self._learn(rows, wins, losses)

    def _learn(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        self.rates.observe(rows, wins, losses)

    def warm_start(self, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike) -> None:
        """Take in outcomes of before the run, in rollouts, as if each prompt had been met once just before it.

        Raises:
            RuntimeError: The run has begun.
        """
        if self.round or self._open_calls:
            raise RuntimeError("outcomes of before the run come before its first round")
        outcomes = checked_outcomes(self.settings.num_prompts, indices, successes, failures)
        self._recall(*summed_outcomes(*outcomes))

    def _recall(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        """What `warm_start` does: distinct prompts, each with an outcome."""
        self.rates.observe(rows, wins, losses)

    def advance(self) -> None:
        """Close the round."""
        handed = int(self._open_units.sum())
        self.round += 1
        self.empty_rounds += handed == 0
        self._closed = {
            "prompts": float(len(self._open_rows)),
            "rollouts": float(handed * self.settings.unit),
        }
        mixed, groups = self._open_groups.tolist()
        if groups:
            self._closed["effective_groups"] = mixed / groups
            self._closed["calibration_mae"] = self._open_calibration.mean_absolute_error
            self._closed["calibration_brier"] = self._open_calibration.brier
        self._open_calibration = Calibration()
        self._open_groups = np.zeros(2, dtype=np.int64)
        self._open_calls = 0
        self._open_rows = self._open_rows[:0]
        self._open_units = self._open_units[:0]

    def metrics(self) -> dict[str, float]:
        """Numbers on the round closed last and on the run so far.

        prompts, rollouts: in that round. effective_groups: share of its groups with both outcomes;
        calibration_mae, calibration_brier: of the pass rates predicted before it was observed; all three are
        absent where nothing was observed. round, empty_rounds, spent, remaining: the run so far, in rollouts.
        exposures_p10, _p50, _p90: rollouts that a prompt has had. q_p10, _p50, _p90: informativeness.
        """
        numbers = dict(self._closed)
        numbers["round"] = float(self.round)
        numbers["empty_rounds"] = float(self.empty_rounds)
        numbers["spent"] = float(self.spent)
        numbers["remaining"] = float(self.remaining)
        numbers.update(spread("exposures", self.exposures, self.settings.unit))
        numbers.update(spread("q", self.rates.q))
        return numbers

    def state_dict(self) -> dict[str, np.ndarray]:
        """Arrays from which `load_state_dict` goes on exactly here, in the middle of a round too.

        Only the scores of outcomes already observed in an open round are not kept: its metrics then cover the rest.
        """
        return {
            "a": self.rates.a.copy(),
            "b": self.rates.b.copy(),
            "exposures": self.exposures.copy(),
            "round": np.array(self.round),
            "empty_rounds": np.array(self.empty_rounds),
            "spent": np.array(self._spent),
            "open_calls": np.array(self._open_calls),
            "open_rows": self._open_rows.copy(),
            "open_units": self._open_units.copy(),
        }

    def extended(self, state: dict[str, np.ndarray], rollouts: int) -> dict[str, np.ndarray]:  # noqa: ARG002
        """Return a state of a run that had so many rollouts less to spend as a state of this one.

        What was learnt and spent stands; pace, and whatever else depends on the budget and the rounds, is this run's.
        """
        return state

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: An array is missing, unknown, of another shape or type than this allocator's, or holds what
                cannot be. Nothing has changed then.
        """
        self._check_state(state)
        self.rates.a[:] = state["a"]
        self.rates.b[:] = state["b"]
        self.rates.refresh()
        self.exposures[:] = state["exposures"]
        self.round = int(state["round"])
        self.empty_rounds = int(state["empty_rounds"])
        self._spent = int(state["spent"])
        self._open_calls = int(state["open_calls"])
        self._open_rows = state["open_rows"].astype(np.int64)
        self._open_units = state["open_units"].astype(np.int64)

    def _check_state(self, state: dict[str, np.ndarray]) -> None:
        own = self.state_dict()
        kind = type(self).__name__
        for name in sorted(own.keys() ^ state.keys()):
            verb = "lacks" if name in own else "has an unknown"
            raise ValueError(f"the state {verb} array {name!r}: it was not saved by {kind} of this version")
        for name, mine in own.items():
            given = np.asarray(state[name])
            # What is open in a round has a length of its own; everything else has this run's shape.
            free = name.startswith("open_") and given.ndim == 1
            if given.dtype.kind != mine.dtype.kind or not (free or given.shape == mine.shape):
                raise ValueError(
                    f"array {name!r} of the state is {given.dtype} {given.shape}, {kind} needs {mine.dtype}"
                    f" {mine.shape}: it was saved for another data set or allocator"
                )
        refuse_state(self._state_rules(state))

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        """What holds of every state of the right shape, and what is wrong with one where it does not."""
        limits, spent, round_ = self.settings, int(state["spent"]), int(state["round"])
        rows, units, exposures = state["open_rows"], state["open_units"], state["exposures"]
        for name in ("a", "b"):
            counts = state[name]
            yield bool((np.isfinite(counts) & (counts > 0)).all()), f"posterior counts {name} that are not positive"
        budget = limits.budget_units
        yield 0 <= spent <= budget, f"{spent} units spent, which is outside the budget of {budget}"
        yield 0 <= round_ <= limits.rounds, f"round {round_} of {limits.rounds}"
        yield 0 <= int(state["empty_rounds"]) <= round_, f"{state['empty_rounds']} empty rounds in {round_}"
        yield int(state["open_calls"]) >= 0, "less than no calls in the open round"
        yield bool((exposures >= 0).all()), "negative exposures"
        total = int(exposures.sum(dtype=np.int64))
        yield total == spent, f"exposures of {total} units where {spent} are spent"
        fits = rows.shape == units.shape and in_range(rows, limits.num_prompts) and bool((units > 0).all())
        yield fits, "an open round that does not fit the prompts"
        open_units = np.bincount(rows, units, minlength=limits.num_prompts)
        yield bool((open_units <= exposures).all()), "an open round that does not fit the exposures"

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, self.round, self._open_calls])


def in_range(rows: Ints, num_prompts: int) -> bool:
    """Return whether these are positions among so many prompts."""
    return bool(((rows >= 0) & (rows < num_prompts)).all())


def refuse_state(rules: Iterable[tuple[bool, str]]) -> None:
    """Refuse a state of which a rule does not hold.

    >>> refuse_state([(True, "no round"), (False, "round 9 of 4")])
    Traceback (most recent call last):
    ValueError: the state has round 9 of 4: it was edited, or saved by another version; take an earlier checkpoint
    """
    for holds, what in rules:
        if not holds:
            raise ValueError(
                f"the state has {what}: it was edited, or saved by another version; take an earlier checkpoint"
            )


def spread(name: str, values: Floats | SmallInts, scale: float = 1.0) -> dict[str, float]:
    """Deciles 1, 5 and 9 of some values as metrics.

    >>> spread("q", np.array([0.0, 1.0, 2.0]))
    {'q_p10': 0.2, 'q_p50': 1.0, 'q_p90': 1.8}
    """
    low, middle, high = quantiles(values, (0.1, 0.5, 0.9))
    return {f"{name}_p10": low * scale, f"{name}_p50": middle * scale, f"{name}_p90": high * scale}
