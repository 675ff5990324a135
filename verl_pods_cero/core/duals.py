"""CERO: which prompts get rollouts in a round, and how many, by a primal-dual rule under one budget.

A round is ``plan -> observe -> advance`` on an explicit state, in units of rollouts whose size is the caller's. Duals
and price are normalised: 1 is lambda / R of utility per unit, R = B / M being each prompt's units in an even split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats, Ints, SmallInts
from verl_pods_cero.core.pass_rates import PassRates, checked_indices
from verl_pods_cero.core.ranking import leaders

# Prompts per block of the dual update: its four streams of float64 then stay in a second-level cache.
_BLOCK = 16_384
_NOBODY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Constants:
    """What does not change during a run.

    Formula:
        R = B / M; Z = K N_max; B_bar = B / K; G_B = max(B_bar, C - B_bar); gamma = 1 / sqrt(K).

    Units:
        budget B, capacity C and n_max N_max in units of rollouts; lam has no unit. C is M N_max (epoch, arXiv
        2606.05606) or one batch (round, 2610.09679).

    >>> published = Constants(num_prompts=8960, rounds=500, budget=64_000, capacity=132, n_max=2)
    >>> published.cap, published.pace, published.price_scale, round(published.step, 4)
    (1000, 128.0, 128.0, 0.0447)
    """

    num_prompts: int
    rounds: int
    budget: int
    capacity: int
    n_max: int
    lam: float = 1.0
    price_moves: bool = True

    @property
    def share(self) -> float:
        """Units that an even split of the budget gives each prompt, R."""
        return self.budget / self.num_prompts

    @property
    def cap(self) -> int:
        """Most units that one prompt can get over the run, Z."""
        return self.rounds * self.n_max

    @property
    def pace(self) -> float:
        """Units that an even split of the budget gives each round, B_bar."""
        return self.budget / self.rounds

    @property
    def price_scale(self) -> float:
        """Largest gap between a round's units and the pace, G_B."""
        return max(self.pace, self.capacity - self.pace)

    @property
    def step(self) -> float:
        """Step size of both dual updates, gamma."""
        return 1.0 / math.sqrt(self.rounds)


@dataclass(slots=True)
class Duals:
    """Everything that a round depends on; `observe` and `advance` change it in place, `plan` never does.

    Shapes and units (52 bytes a prompt):
        theta: (M,) float64, normalised dual of each prompt, in [0, 1].
        rates: posteriors a, b and informativeness q, (M,) float64 each.
        tie: (M,) int32, a permutation of 0..M-1; of equal margins the smaller rank goes first.
        log_top, reach: (M,) float64, caches of log(4 q) and R / (4 lam q), which change only where q does.
        price: normalised price of a unit, mu, in [0, 1]. budget_left: units. round: rounds behind us.
    """

    constants: Constants
    theta: Floats
    rates: PassRates
    tie: SmallInts
    log_top: Floats
    reach: Floats
    price: float
    budget_left: int
    round: int = 0

    @property
    def bytes_per_prompt(self) -> int:
        """Memory that the arrays take, per prompt."""
        return self.tie.itemsize + 6 * self.theta.itemsize  # log_top, reach, a, b and q are like theta


class Plan(NamedTuple):
    """One round's decision.

    Shapes and units:
        indices: (k,) int64, distinct prompts, largest margin first (or in the order of the candidates given).
        planned: (k,) int64, units N~ that the price admits, or that are due in this round.
        executed: (k,) int64, N, the same clipped to the budget left, 0 <= executed <= planned <= N_max.
    """

    indices: Ints = _NOBODY
    planned: Ints = _NOBODY
    executed: Ints = _NOBODY

    def joined(self, other: Plan) -> Plan:
        """Both plans as one; they must not share a prompt."""
        return Plan(*map(np.concatenate, zip(self, other, strict=True)))


def start(constants: Constants, rates: PassRates, seed: int, price: float = 0.5) -> Duals:
    """State before the first round.

    Formula:
        theta_i = 4 q_i, mu = price, the whole budget left, tie ranks drawn from the seed.

    >>> s = start(Constants(4, rounds=2, budget=8, capacity=4, n_max=2), PassRates.start(4), seed=0)
    >>> s.theta.round(3).tolist(), s.price, s.budget_left
    ([0.667, 0.667, 0.667, 0.667], 0.5, 8)
    """
    m = constants.num_prompts
    tie = np.random.default_rng(seed).permutation(m).astype(np.int32)
    state = Duals(constants, 4.0 * rates.q, rates, tie, np.empty(m), np.empty(m), price, constants.budget)
    refresh(state, slice(None))
    return state


def refresh(state: Duals, where: Ints | slice) -> None:
    """Bring the caches in line with q > 0 for the prompts named."""
    top = 4.0 * state.rates.q[where]
    state.log_top[where] = np.log(top)
    state.reach[where] = state.constants.share / (state.constants.lam * top)


def plan(state: Duals, candidates: ArrayLike | None = None, so_far: Plan | None = None) -> Plan:
    """Decide the round: N_max for each prompt whose dual exceeds the price, largest margin first.

    Formula:
        margin d_i = theta_i - mu. N~: prompts with d_i > 0, largest first, N_max each until C is used up (the last one
        may get less); where that is less than is `due`, the next largest margins follow, whatever their sign, up to C.
        N: the same order clipped to the budget left.

    Args:
        state: Not changed.
        candidates: Rows that may get rollouts, (k,), or None for all M. The answer then follows their order.
        so_far: What this round has planned already, when it is planned in several parts.

    Source:
        arXiv 2610.09679, one round; ties are broken by a fixed seeded permutation. That the whole budget is spent is
        settled here: by the papers' rule B less what is planned is G_B sqrt(K) times the price's fall since the start.

    >>> s = start(Constants(4, rounds=2, budget=3, capacity=4, n_max=2), PassRates.start(4), seed=0)
    >>> p = plan(s)
    >>> p.indices.tolist(), p.planned.tolist(), p.executed.tolist()
    ([1, 2], [2, 2], [2, 1])
    """
    c, so_far = state.constants, so_far or Plan()
    room = c.capacity - int(so_far.planned.sum())
    funds = state.budget_left - int(so_far.executed.sum())
    theta, tie, rows = state.theta, state.tie, None
    if candidates is not None or len(so_far.indices):
        rows = np.arange(c.num_prompts) if candidates is None else checked_indices(c.num_prompts, candidates)
        rows = rows[np.sort(np.unique(rows, return_index=True)[1])]
        rows = rows[~np.isin(rows, so_far.indices)]
        theta, tie = theta[rows], tie[rows]
    chosen = leaders(theta, tie, floor=state.price, count=-(-room // c.n_max))
    owed = min(due(state), c.capacity) - int(so_far.planned.sum())
    if len(chosen) * c.n_max < owed:
        chosen, room = leaders(theta, tie, floor=-1.0, count=-(-owed // c.n_max)), owed
    planned = _poured(len(chosen), c.n_max, room)
    executed = np.minimum(planned, _poured(len(chosen), c.n_max, funds))
    if candidates is not None:
        order = np.argsort(chosen)
        chosen, planned, executed = chosen[order], planned[order], executed[order]
    return Plan(chosen if rows is None else rows[chosen], planned, executed)


def due(state: Duals) -> int:
    """Units that this round has to spend, because later rounds can spend no more than C each.

    More than C where earlier rounds had too few candidates: the budget can then no longer be spent.

    >>> s = start(Constants(4, rounds=2, budget=7, capacity=4, n_max=2), PassRates.start(4), seed=0)
    >>> due(s)
    3
    """
    c = state.constants
    return max(0, state.budget_left - c.capacity * max(0, c.rounds - state.round - 1))


def _poured(count: int, each: int, total: int) -> Ints:
    """`each` units to each of `count` prompts in turn, until `total` is used up."""
    return np.clip(total - each * np.arange(count, dtype=np.int64), 0, each)


def observe(state: Duals, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike) -> None:
    """Take in outcomes (rollouts, not units): posterior, q and the caches, for the prompts observed only."""
    refresh(state, state.rates.observe(indices, successes, failures))


def advance(state: Duals, decided: Plan) -> None:
    """Close a round: move the duals of all M prompts and the price, and pay for what was executed.

    Formula:
        theta_i <- clip[0,1](theta_i - gamma (N~_i - z*_i / K) / N_max), z* at the old dual with the new q;
        mu <- clip[0,1](mu - gamma (B_bar - sum N~) / G_B).
        Both use the planned N~, also where the budget cut it short.

    Source:
        arXiv 2606.05606 (projected online gradient descent); 2610.09679 for the scaling.
    """
    c, theta, rows = state.constants, state.theta, decided.indices
    charged = _raised(theta[rows], state.log_top[rows], state.reach[rows], c)
    charged -= c.step / c.n_max * decided.planned
    scratch = np.empty(min(_BLOCK, len(theta)))
    for low in range(0, len(theta), _BLOCK):
        block = slice(low, low + _BLOCK)
        part = theta[block]
        _raised(part, state.log_top[block], state.reach[block], c, scratch[: len(part)])
        np.minimum(scratch[: len(part)], 1.0, out=part)
    theta[rows] = np.clip(charged, 0.0, 1.0)
    if c.price_moves:
        drift = c.step * (c.pace - float(decided.planned.sum())) / c.price_scale
        state.price = min(1.0, max(0.0, state.price - drift))
    state.budget_left -= int(decided.executed.sum())
    state.round += 1


def _raised(theta: Floats, log_top: Floats, reach: Floats, c: Constants, out: Floats | None = None) -> Floats:
    """Duals after the part of the update that wants rollouts, theta + gamma z* / Z, before any clip.

    z* = R / (4 lam q) log(4 q / theta) clipped to [0, Z], which `utility.best_total` writes as branches.
    """
    with np.errstate(divide="ignore"):
        z = np.log(theta, out=out)
    np.subtract(log_top, z, out=z)
    z *= reach
    np.clip(z, 0.0, float(c.cap), out=z)
    z *= c.step / c.cap
    z += theta
    return z
