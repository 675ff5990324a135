"""CERO as an allocator, and the two controls that share its duals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verl_pods_cero.core import duals
from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.budget import BudgetedAllocator, in_range, spread
from verl_pods_cero.core.duals import Constants, Duals, Plan
from verl_pods_cero.core.settings import AllocatorSettings


class Cero(BudgetedAllocator):
    """CERO: rollouts go where the prompt's dual exceeds the price of the budget.

    Formula:
        see `verl_pods_cero.core.duals`. Among candidates the largest margins are served, and the answer is
        in the candidates' order.

    Memory:
        56 bytes a prompt: the 52 of its duals and the exposures.

    Source:
        arXiv 2606.05606; 2610.09679 for the round schedule.

    >>> s = AllocatorSettings(num_prompts=4, budget=32, rounds=4, batch_prompts=2, n=4, unit=2)
    >>> a = Cero(s)
    >>> p = a.plan(candidates=[3, 1, 0]); p.rollouts.tolist(), a.room
    ([4, 4], 0)
    >>> a.observe(p.indices, successes=[4, 2], failures=[0, 2]); a.advance()
    >>> a.remaining, round(a.metrics()["price"], 3)
    (24, 0.5)
    """

    # 132 units for 128 due, as published: without room above what is due, every round is filled and no price acts.
    headroom = 33 / 32

    _price_moves = True
    _serves_its_plan = True

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        constants = Constants(
            num_prompts=settings.num_prompts,
            rounds=settings.rounds,
            budget=settings.budget_units,
            capacity=settings.capacity_units,
            n_max=settings.n_max_units,
            lam=settings.lam,
            price_moves=self._price_moves,
        )
        price = settings.price if self._price_moves else 0.0
        self._duals: Duals = duals.start(constants, self.rates, settings.seed, price)
        self._open_plan = Plan()

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Whoever is served gets n_max."""
        most = settings.n_max_units * settings.unit
        return most, most

    @classmethod
    def takes_everyone(cls, settings: AllocatorSettings, offered: int) -> bool:
        """The price turns prompts away unless every round must spend its capacity."""
        bound = not cls._price_moves or settings.budget_units >= settings.rounds * settings.capacity_units
        return bound and super().takes_everyone(settings, offered)

    @property
    def bytes_per_prompt(self) -> int:
        """Memory that the arrays take, per prompt."""
        return self._duals.bytes_per_prompt + self.exposures.itemsize

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        decided = duals.plan(self._duals, candidates, self._open_plan)
        self._open_plan = self._open_plan.joined(decided)
        return decided.indices, decided.executed

    def _learn(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        duals.observe(self._duals, rows, wins, losses)

    def _recall(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        """Duals start at 4 q, of what is known by then."""
        duals.observe(self._duals, rows, wins, losses)
        self._duals.theta[rows] = 4.0 * self.rates.q[rows]

    def advance(self) -> None:
        """Close the round: duals and price move by what was planned."""
        duals.advance(self._duals, self._open_plan)
        self._open_plan = Plan()
        super().advance()

    def metrics(self) -> dict[str, float]:
        """Adds price (mu) and the deciles of theta."""
        price = {"price": self._duals.price}
        return super().metrics() | price | spread("theta", self._duals.theta)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Adds the duals, the price, the tie ranks and the open plan."""
        own = {
            "theta": self._duals.theta.copy(),
            "price": np.array(self._duals.price),
            "tie": self._duals.tie.copy(),
            "units_left": np.array(self._duals.budget_left),
        }
        own |= {f"open_plan_{name}": part.copy() for name, part in self._open_plan._asdict().items()}
        return super().state_dict() | own

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        yield from super()._state_rules(state)
        m, n_max, theta, price = self.settings.num_prompts, self.settings.n_max_units, state["theta"], state["price"]
        yield bool(((theta >= 0) & (theta <= 1)).all()), "duals theta outside 0 to 1"
        yield 0.0 <= float(price) <= 1.0, f"a price of {price}, outside 0 to 1"
        yield bool((np.sort(state["tie"]) == np.arange(m)).all()), "tie ranks that are no permutation"
        rows, planned, executed = (state[f"open_plan_{name}"] for name in Plan._fields)
        fits = rows.shape == planned.shape == executed.shape and in_range(rows, m) and len(np.unique(rows)) == len(rows)
        yield fits, "an open plan that does not fit the prompts"
        whole = (executed >= 0) & (executed <= planned) & (planned <= n_max)
        yield bool(whole.all()), f"an open plan of other than 0 to {n_max} units each"
        left, closed = int(state["units_left"]), int(state["spent"]) - int(state["open_units"].sum())
        most = self.settings.budget_units - closed
        adds_up = left == most if self._serves_its_plan else 0 <= left <= most
        yield adds_up, f"{left} units left, and {closed} spent in closed rounds, of {self.settings.budget_units}"

    def extended(self, state: dict[str, np.ndarray], rollouts: int) -> dict[str, np.ndarray]:
        """What was added is left to spend; duals and price go on, at the longer run's smaller steps."""
        left = state.get("units_left")
        return state if left is None else state | {"units_left": left + rollouts // self.settings.unit}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state; the caches follow from the posterior."""
        super().load_state_dict(state)
        own = self._duals
        own.theta[:] = state["theta"]
        own.tie[:] = state["tie"]
        own.price = float(state["price"])
        own.budget_left = int(state["units_left"])
        own.round = self.round
        self._open_plan = Plan(*(state[f"open_plan_{name}"].astype(np.int64) for name in Plan._fields))
        duals.refresh(own, slice(None))


class FixedPacing(Cero):
    """CERO without a price: the largest duals fill every round until the budget is gone.

    Formula:
        mu = 0 throughout; the rest as in CERO.

    Source:
        CERO's rule, arXiv 2606.05606, with the price left out: a control that shows what the price is worth.
    """

    _price_moves = False


class RandomMatched(Cero):
    """CERO's exposures given at random: the control that paces like CERO but does not choose the prompts.

    Formula:
        in each round CERO plans; the numbers of rollouts that it would have executed go to as many prompts
        drawn evenly without replacement (from the candidates, where those are given).

    What is matched:
        the sizes of the rounds, empty ones included, as this CERO plans them. The duals of the prompts that it
        planned are charged, which keeps its pace; outcomes refresh the posterior of the prompts that were
        really served. So the rounds are close to those of a CERO run but not the same, whose duals answer to
        other outcomes; and how often one prompt is drawn is left to chance.

    Source:
        The random control of arXiv 2610.09679, in the form settled here.
    """

    _serves_its_plan = False

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        _, units = super()._choose(candidates)
        units = units[units > 0]
        # Drawn by tie rank, so that the draw belongs to the prompt and not to its place in the data set.
        pool = self._by_rank() if candidates is None else np.unique(candidates)
        if candidates is not None:
            pool = pool[np.argsort(self._duals.tie[pool])]
        if len(self._open_rows):
            pool = pool[~np.isin(pool, self._open_rows)]
        count = min(len(units), len(pool))
        drawn = pool[self._generator().choice(len(pool), size=count, replace=False)]
        if candidates is not None:
            first_seen = np.sort(np.unique(candidates, return_index=True)[1])
            drawn = candidates[first_seen[np.isin(candidates[first_seen], drawn)]]
        return drawn, units[:count]

    def _by_rank(self) -> Ints:
        rows = np.empty(self.settings.num_prompts, dtype=np.int64)
        rows[self._duals.tie] = np.arange(len(rows))
        return rows
