"""A step of which nothing comes back makes no update, and does not end a run at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from verl.trainer.ppo.v1 import trainer_base

from verl_pods_cero.hooks import empty_steps
from verl_pods_cero.hooks.empty_steps import FAILED_STEPS, ClearsNothing, EmptyStepsMixin

REFUSAL = "Sync replay buffer selected terminal groups with no materializable trajectories."


class Refuses:
    """verl's trainer, as far as the mixin needs it, at a step that its buffer refuses."""

    def _step_once(self, *_args: object, **_kwargs: object) -> None:
        raise RuntimeError(REFUSAL)

    def on_sample_end(self) -> None:
        self.slept = True


class Trainer(EmptyStepsMixin, Refuses):
    def __init__(self, *, failed: set[str], stored: dict[str, dict[str, object]] | None = None) -> None:
        self._failed_in_a_row, self._planner = 0, None
        self._balanced, self._submitted = False, [*failed]
        self._row_of_uid: dict[str, int] = {}
        self.global_steps, self.slept = 3, False
        self.replay_buffer = SimpleNamespace(
            pending_keys={"train": set()},
            running_keys={"train": set()},
            failure_keys={"train": failed},
            partitions={"train": stored or {}},
        )

    def run_step(self):
        self._balanced = False
        return self._step_once({}, {}, 1)


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    gone: list[str] = []
    monkeypatch.setattr(empty_steps.tq, "kv_clear", lambda keys, **_: gone.extend(keys))
    monkeypatch.setattr(trainer_base, "tq", trainer_base.tq)  # the mixin replaces it
    return gone


def test_a_step_whose_rollouts_all_failed_is_cleared_and_the_run_goes_on(cleared, caplog):
    trainer = Trainer(failed={"a", "b"})
    batch = trainer.run_step()
    assert len(batch) == 0
    assert sorted(cleared) == ["a", "b"]
    assert trainer.slept
    assert trainer._balanced
    assert isinstance(trainer_base.tq, ClearsNothing)
    assert "every rollout of step 3 failed" in caplog.text


def test_such_steps_in_a_row_end_the_run_with_verls_own_error(cleared):
    trainer = Trainer(failed={"a"})
    for _ in range(FAILED_STEPS - 1):
        trainer.run_step()
    with pytest.raises(RuntimeError, match=REFUSAL):
        trainer.run_step()


def test_another_error_of_verls_step_passes_through(cleared):
    trainer = Trainer(failed={"a"}, stored={"a_0_0": {}})
    with pytest.raises(RuntimeError, match=REFUSAL):
        trainer.run_step()
    assert not cleared
