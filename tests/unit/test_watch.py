"""A run is ended when one of its actors has died, and a step that takes long says what it waits for."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError

from verl_pods_cero.errors import PluginError
from verl_pods_cero.hooks import watch
from verl_pods_cero.hooks.watch import Watch


class Actor:
    """A handle: `state` is alive, busy or dead."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.__ray_ready__ = SimpleNamespace(remote=lambda: Sign(self))


class Sign:
    """An answer, as the actor was when it was asked."""

    def __init__(self, actor: Actor) -> None:
        self.state = actor.state


@pytest.fixture
def killed(monkeypatch):
    """Ray over `Actor`; return what was killed."""

    def get(sign):
        if sign.state == "dead":
            raise ActorUnavailableError("the worker was killed by the out-of-memory killer", None)

    there: list[Actor] = []
    ray = SimpleNamespace(
        wait=lambda signs, **_: ([sign for sign in signs if sign.state != "busy"], []),
        get=get,
        kill=lambda actor: there.append(actor),
    )
    monkeypatch.setattr(watch, "ray", ray)
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    monkeypatch.setattr(watch, "GRACE_S", 0.02)
    return there


def watched(**states: str) -> Watch:
    actors = {name: [Actor(state)] for name, state in states.items()}
    return Watch(actors, ["a rank"], lambda: "64 rollouts")


def test_an_actor_that_is_alive_or_busy_is_left_alone(killed):
    seen = watched(server="alive", worker="busy")
    assert [seen.look() for _ in range(3)] == ["", "", ""]


def test_a_dead_one_is_named_with_the_cause(killed):
    assert "server died (" in watched(worker="busy", server="dead").look()


def test_a_wait_for_a_dead_one_is_ended_and_the_error_says_which(killed):
    seen = watched(server="dead")

    def wait_for_ever():
        ended.wait(30)
        raise RuntimeError("the rank was killed")

    ended = threading.Event()
    watch.ray.kill = lambda actor: (killed.append(actor), ended.set())
    with pytest.raises(PluginError, match=r"server died \(.* Fix: resume from the last checkpoint"), seen.running():
        wait_for_ever()
    assert killed == ["a rank"]


def test_one_that_has_died_since_it_was_asked_last_is_named_too(killed, monkeypatch):
    monkeypatch.setattr(watch, "LOOK_S", 30.0)
    actor = Actor("alive")
    seen = Watch({"server": [actor]}, [], str)
    with pytest.raises(PluginError, match="server died"), seen.running():
        actor.state = "dead"
        raise RuntimeError("verl's own")


def test_an_error_of_a_run_whose_actors_live_passes_as_it_is(killed):
    with pytest.raises(ZeroDivisionError), watched(server="alive").running():
        raise ZeroDivisionError
    assert not killed


def test_a_run_that_ends_by_itself_in_time_is_not_ended_again_but_says_which_actor_died(killed, monkeypatch):
    monkeypatch.setattr(watch, "GRACE_S", 30.0)
    with pytest.raises(PluginError, match="server died") as ended, watched(server="dead").running():
        raise RuntimeError("verl's own")
    assert "verl's own" in str(ended.value.__cause__)
    assert not killed


def test_a_step_that_takes_much_longer_than_the_others_says_what_it_waits_for_once_a_minute(
    killed, caplog, monkeypatch
):
    seen = watched()
    for now in (0.0, 30.0):
        monkeypatch.setattr(watch.time, "monotonic", lambda now=now: now)
        seen.step_begins()
    for seconds in (10, 149, 151, 160, 212):
        seen.speak(30.0 + seconds)
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(",")[0] for text in said] == ["this step has taken 151 s", "this step has taken 212 s"]
    assert "the longest before it 30 s; it waits for 64 rollouts" in said[0]


def test_the_first_step_has_nothing_to_be_compared_with(killed, caplog):
    seen = watched()
    seen.step_begins()
    seen.speak(watch.time.monotonic() + 10_000)
    assert not caplog.records
