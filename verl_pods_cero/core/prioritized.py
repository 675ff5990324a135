"""Prioritised replay of prompts: likely mixed groups first, and the sooner the longer ago a prompt was met."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.logit_beliefs import BEFORE, NEVER, LogitBeliefs
from verl_pods_cero.core.mixed_groups import MixedGroups
from verl_pods_cero.core.pass_rates import checked_indices, summed_outcomes
from verl_pods_cero.core.ranked import RankedAllocator
from verl_pods_cero.core.settings import AllocatorSettings

# Priorities looked up anew in a round, as a multiple of the prompts served: each prompt's comes up so often an epoch.
_LOOKUPS = 16


class Prioritized(RankedAllocator):
    """Rollouts go where a group is likely to be mixed, weighed against how long ago the prompt was met.

    Formula:
        priority_i = v_i^focus (t - t_i); the largest get n rollouts each.
        v_i = 1 - E p_i^n - E (1 - p_i)^n, the probability that a group of n has both outcomes under what is believed
        of the prompt at clock t (`LogitBeliefs`); t counts epochs, M n rollouts each, before the open round; t_i is t
        at the prompt's last outcomes in this run, and -1 before any.

    What `focus` does:
        where priorities have one threshold c, a prompt is met again when (t - t_i) = c / v^focus, so often in
        proportion to v^focus. 0 serves all alike, infinity only the likeliest mixed; 2 is alpha-fairness with
        alpha = 1/2 (index v age^alpha, rate v^(1/alpha)).

    Compared with:
        GRESO (arXiv 2506.02177) skips prompts by the streak of groups without variance and keeps no belief of the
        rest; MoPPS (arXiv 2507.04632) has a Beta belief without drift or shared prior, and no staleness: it comes
        back to few prompts.

    Memory and cost:
        56 bytes a prompt, and 8 of scratch. A round looks v up for 16 prompts per prompt served, in rotation, and for
        the prompts that had outcomes: v of the others is up to 1/16 epoch old. The rest is one product over M numbers
        and a selection. The Beta posterior of the books (`rho`, `prior_successes`, `prior_failures`) is kept for
        `dump_prompts` and decides nothing.

    Source:
        Prioritised level replay, arXiv 2010.03934 (score and staleness); alpha-fair scheduling, Mo and Walrand (2000),
        "Fair end-to-end window-based congestion control"; the belief is that of `LogitBeliefs`.

    >>> a = Prioritized(AllocatorSettings(num_prompts=4, budget=64, rounds=4, batch_prompts=2, n=8))
    >>> first = a.plan(candidates=[0, 1]); a.observe([0, 1], [8, 4], [0, 4]); a.advance()
    >>> sorted(a.plan().indices.tolist())
    [2, 3]
    >>> a.predict([0, 1, 2]).round(2).tolist()
    [0.91, 0.5, 0.51]
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        self.beliefs = LogitBeliefs.start(settings.num_prompts, settings.drift_noise)
        self._mixed = MixedGroups(settings.group_units * settings.unit)
        self._cursor = 0
        self._warm = False
        # Nothing is known yet, so all have one weight.
        self._weight: Floats = np.full(settings.num_prompts, self._weights(np.zeros(1, dtype=np.int64))[0])

    @property
    def bytes_per_prompt(self) -> int:
        """Memory that the arrays take, per prompt."""
        beliefs, rates = self.beliefs, self.rates
        doubles = (beliefs.clock, self._weight, rates.a, rates.b, rates.q)
        singles = (beliefs.mean, beliefs.variance, self._tie, self.exposures)
        return sum(array.itemsize for array in doubles) + sum(array.itemsize for array in singles)

    @property
    def _clock(self) -> float:
        """Epochs of rollouts handed out before the open round."""
        return self._epochs(self._spent - int(self._open_units.sum()))

    def _epochs(self, units: int) -> float:
        return units / (self.settings.num_prompts * self.settings.group_units)

    def predict(self, indices: ArrayLike) -> Floats:
        """Pass rates expected now of the prompts at `indices`, (k,), by the beliefs that decide."""
        return self.beliefs.predict(checked_indices(self.settings.num_prompts, indices), self._clock).pass_rate

    def _weights(self, rows: Ints) -> Floats:
        now = self.beliefs.predict(rows, self._clock)
        return np.asarray(self._mixed(now.mean, now.sd) ** self.settings.focus)

    def _index(self, rows: Ints | None) -> Floats:
        stale, which = rows, rows if rows is not None else slice(None)
        if stale is None:
            served = -(-self._room // self.settings.group_units)
            count = min(self.settings.num_prompts, _LOOKUPS * served)
            stale = (self._cursor + np.arange(count)) % self.settings.num_prompts
            self._cursor = (self._cursor + count) % self.settings.num_prompts
        self._weight[stale] = self._weights(stale)
        met = self.beliefs.clock[which]
        if self._warm:
            met = np.where(met == BEFORE, NEVER, met)
        return np.asarray(self._weight[which] * (self._clock - met))

    def _learn(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        super()._learn(rows, wins, losses)
        rows, wins, losses = summed_outcomes(rows, wins, losses)
        if len(rows):
            self.beliefs.observe(rows, wins, losses, self._clock)
            self._weight[rows] = self._weights(rows)

    def _recall(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        super()._recall(rows, wins, losses)
        self.beliefs.observe(rows, wins, losses, BEFORE)
        self._weight[:] = self._weights(np.arange(self.settings.num_prompts))
        self._warm = True

    def metrics(self) -> dict[str, float]:
        """Adds drift (logits an epoch), and prior_mean and prior_sd of the logits of prompts not met yet."""
        mean, variance = self.beliefs.prior
        own = {"drift": self.beliefs.drift, "prior_mean": mean, "prior_sd": variance**0.5}
        return super().metrics() | own

    def state_dict(self) -> dict[str, np.ndarray]:
        """Adds the beliefs, the weights v^focus and where their rotation is."""
        beliefs = self.beliefs
        own: dict[str, np.ndarray] = {
            "logit_mean": beliefs.mean.copy(),
            "logit_variance": beliefs.variance.copy(),
            "logit_clock": beliefs.clock.copy(),
            "logit_first": beliefs.first.copy(),
            "drift": np.array([beliefs.drift, beliefs.information]),
            "weight": self._weight.copy(),
            "cursor": np.array(self._cursor),
        }
        return super().state_dict() | own

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        yield from super()._state_rules(state)
        for name in ("logit_mean", "logit_first", "drift"):
            yield bool(np.isfinite(state[name]).all()), f"numbers {name} that are not finite"
        for name in ("logit_variance", "weight"):
            yield bool((np.isfinite(state[name]) & (state[name] >= 0)).all()), f"numbers {name} below 0 or not finite"
        clock = state["logit_clock"]
        known = (clock == NEVER) | ((clock >= BEFORE) & (clock <= self._epochs(int(state["spent"]))))
        yield bool(known.all()), "outcomes from outside the run"
        yield 0 <= int(state["cursor"]) < self.settings.num_prompts, f"a cursor of {state['cursor']}"

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        beliefs = self.beliefs
        beliefs.mean[:], beliefs.variance[:] = state["logit_mean"], state["logit_variance"]
        beliefs.clock[:], beliefs.first[:] = state["logit_clock"], state["logit_first"]
        beliefs.drift, beliefs.information = state["drift"].tolist()
        self._weight[:] = state["weight"]
        self._warm = bool((beliefs.clock == BEFORE).any())
        self._cursor = int(state["cursor"])
