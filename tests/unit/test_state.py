from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.state import StateError, StateHeader, fingerprint, load_state, read_header, save_state
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import option_names

SETTINGS = AllocatorSettings(num_prompts=30, budget=480, rounds=10, batch_prompts=6)
HEADER = StateHeader("cero", "round", fingerprint([b"one", b"two"]), 30, SETTINGS.as_dict())
ARRAYS = {"theta": np.linspace(0.0, 1.0, 30), "round": np.array(3), "open_rows": np.zeros(0, dtype=np.int64)}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "allocator.npz"
    save_state(path, HEADER, ARRAYS)
    return path


def rewritten(path: Path, **members: np.ndarray) -> None:
    with np.load(path) as file:
        content: dict[str, Any] = {name: file[name] for name in file.files} | members
    with path.open("wb") as file:
        np.savez(file, **content)


def test_what_is_loaded_is_what_was_saved(saved: Path) -> None:
    loaded = load_state(saved, HEADER)
    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype and np.array_equal(loaded[name], array)


@pytest.mark.parametrize("name", ["cero", "greso", "random_matched"])
def test_an_allocator_goes_on_from_a_file(tmp_path: Path, name: str) -> None:
    first, second = create_allocator(name, SETTINGS), create_allocator(name, SETTINGS)
    for _ in range(3):
        given_out = first.plan()
        first.observe(given_out.indices, given_out.rollouts // 2, given_out.rollouts - given_out.rollouts // 2)
        first.advance()
    header = replace(HEADER, allocator=name)
    save_state(tmp_path / "s.npz", header, first.state_dict())
    second.load_state_dict(load_state(tmp_path / "s.npz", header))
    assert second.plan().indices.tolist() == first.plan().indices.tolist()


def test_no_pickle_is_written(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as file:
        assert all(not file[name].dtype.hasobject for name in file.files)


def test_saving_again_replaces_the_file_and_leaves_nothing_else_behind(saved: Path) -> None:
    save_state(saved, HEADER, ARRAYS | {"round": np.array(4)})
    assert load_state(saved, HEADER)["round"] == 4
    assert os.listdir(saved.parent) == [saved.name]  # noqa: PTH208


def test_a_save_that_fails_keeps_the_former_state_and_leaves_nothing_behind(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_state(saved, HEADER, ARRAYS | {"round": np.array(4)})
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert load_state(saved, HEADER)["round"] == 3


@pytest.mark.parametrize("name", ["__header__", "__checksum__", "file", "allow_pickle"])
def test_a_reserved_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StateError, match=f"'{name}' cannot be saved"):
        save_state(tmp_path / "s.npz", HEADER, {name: np.zeros(1)})


def test_an_array_of_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="'theta' cannot be saved"):
        save_state(tmp_path / "s.npz", HEADER, {"theta": np.array([None])})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "version 1, this run has 2: use the release"),
        ({"allocator": "greso"}, r"allocator 'cero', this run has 'greso': set name back"),
        ({"dataset_size": 31}, "dataset_size 30, this run has 31: train on the same files"),
        ({"dataset_fingerprint": "x"}, "this run has 'x': the rows or their order changed"),
        ({"schedule": "epoch"}, r"schedule 'round', this run has 'epoch': set schedule back"),
        (
            {"settings": SETTINGS.as_dict() | {"rho": 0.5}},
            r"rho=1\.0, this run has 0\.5: set it back",
        ),
        ({"settings": {}}, r"batch_prompts=6, this run has None"),
    ],
)
def test_a_state_of_another_run_is_refused_with_what_differs_and_a_way_out(
    saved: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(StateError, match=complaint):
        load_state(saved, replace(HEADER, **changes))


def test_a_setting_that_may_grow_may_not_shrink(saved: Path) -> None:
    budget = SETTINGS.as_dict()["budget"]
    larger, smaller = (replace(HEADER, settings=SETTINGS.as_dict() | {"budget": budget + more}) for more in (6, -6))
    assert load_state(saved, larger, growing=["budget"]).keys() == load_state(saved, HEADER).keys()
    assert read_header(saved)["settings"]["budget"] == budget
    with pytest.raises(StateError, match="longer, not shorter; set steps or budget back"):
        load_state(saved, smaller, growing=["budget"])
    with pytest.raises(StateError, match="budget="):
        load_state(saved, larger)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"no allocator state at .*absent\.npz: .* start a new run"):
        load_state(tmp_path / "absent.npz", HEADER)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(saved: Path, part: float) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(StateError, match="cut short or is another kind of file; go back to an earlier checkpoint"):
        load_state(saved, HEADER)


def test_every_flipped_byte_is_noticed_or_harmless(saved: Path) -> None:
    whole = saved.read_bytes()
    for place in range(0, len(whole), 41):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded = load_state(saved, HEADER)
        except StateError:
            continue
        assert all(np.array_equal(loaded[name], array) for name, array in ARRAYS.items())


@pytest.mark.parametrize(
    "members",
    [
        {"theta": np.linspace(0.0, 0.9, 30)},
        {"theta": np.linspace(0.0, 1.0, 30).reshape(5, 6)},
        {"theta": np.linspace(0.0, 1.0, 30).astype(">f8")},
        {"extra": np.zeros(1)},
        {"__checksum__": np.zeros(32, dtype=np.uint8)},
    ],
)
def test_an_edited_array_is_refused(saved: Path, members: dict[str, np.ndarray]) -> None:
    rewritten(saved, **members)
    with pytest.raises(StateError, match="changed after it was saved"):
        load_state(saved, HEADER)


def test_an_edited_header_is_refused(saved: Path) -> None:
    edited = replace(HEADER, dataset_fingerprint="another")
    text = np.frombuffer(json.dumps(asdict(edited), sort_keys=True).encode(), dtype=np.uint8)
    rewritten(saved, __header__=text)
    with pytest.raises(StateError, match="changed after it was saved"):
        load_state(saved, edited)


@pytest.mark.parametrize("text", [b"not json", b"[1, 2]", b"\xff\xfe"])
def test_a_header_that_makes_no_sense_is_refused(saved: Path, text: bytes) -> None:
    rewritten(saved, __header__=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(StateError, match="not a whole allocator state"):
        load_state(saved, HEADER)


def test_a_header_of_a_later_layout_is_named_as_such(saved: Path) -> None:
    later = json.dumps(asdict(HEADER) | {"version": 7, "flavour": "new"}).encode()
    rewritten(saved, __header__=np.frombuffer(later, dtype=np.uint8))
    with pytest.raises(StateError, match="version 7, this run has 1: use the release of verl-pods-cero"):
        load_state(saved, HEADER)


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    for write in (
        lambda: path.write_text("text"),
        lambda: path.write_bytes(npy_bytes(np.zeros(3))),
        lambda: zipfile.ZipFile(path, "w").close(),
        lambda: rewritten_pickle(path),
    ):
        write()
        with pytest.raises(StateError, match="not a whole allocator state"):
            load_state(path, HEADER)


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def rewritten_pickle(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, theta=np.array([object()], dtype=object))


def test_the_fingerprint_depends_on_rows_and_their_order() -> None:
    prints = {fingerprint(rows) for rows in ([b"a", b"b"], [b"b", b"a"], [b"ab"], [b"a"], [], [b""])}
    assert len(prints) == 6


# --- content that cannot be, under a checksum that fits --------------------------------------------------------------


def in_the_middle_of_a_round(name: str) -> Any:
    allocator = create_allocator(name, SETTINGS)
    for number in range(3):
        given_out = allocator.plan([number, 7, 9, 11, 20, 21])
        allocator.observe(given_out.indices, given_out.rollouts // 2, given_out.rollouts - given_out.rollouts // 2)
        if number < 2:
            allocator.advance()
    return allocator


EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("uniform", {"round": 11}, "round 11 of 10"),
    ("uniform", {"round": -1}, "round -1 of 10"),
    ("uniform", {"empty_rounds": 3}, "3 empty rounds in 2"),
    ("uniform", {"open_calls": -1}, "less than no calls"),
    ("uniform", {"exposures": lambda old: old - 3}, "negative exposures"),
    ("uniform", {"exposures": lambda old: old + 1}, "units where"),
    ("uniform", {"spent": 30}, "where 30 are spent"),
    ("uniform", {"a": lambda old: old * np.nan}, "posterior counts a that are not positive"),
    ("uniform", {"b": lambda old: old + np.inf}, "posterior counts b that are not positive"),
    ("uniform", {"open_rows": lambda old: old + 30}, "does not fit the prompts"),
    ("uniform", {"open_rows": lambda old: old[1:]}, "does not fit the prompts"),
    ("uniform", {"open_units": lambda old: -old}, "does not fit the prompts"),
    ("uniform", {"open_units": lambda old: old + 99}, "does not fit the exposures"),
    ("uniform", {"visited": -1}, "less than no prompts visited"),
    ("cero", {"theta": lambda old: old * np.nan}, "theta outside 0 to 1"),
    ("cero", {"theta": lambda old: old + 1.0}, "theta outside 0 to 1"),
    ("cero", {"price": np.nan}, "a price of nan"),
    ("cero", {"tie": lambda old: old * 0}, "no permutation"),
    ("cero", {"units_left": 119}, "119 units left"),
    ("cero", {"units_left": -1}, "-1 units left"),
    ("random_matched", {"units_left": 119}, "119 units left"),
    ("cero", {"open_plan_indices": lambda old: old * 0}, "open plan that does not fit the prompts"),
    ("cero", {"open_plan_planned": lambda old: old + 9}, "other than 0 to 2 units"),
    ("cero", {"open_plan_executed": lambda old: old - 9}, "other than 0 to 2 units"),
    ("greso", {"explore": lambda old: old * 0}, "chances to explore"),
    ("greso", {"open_counts": lambda old: old[:2]}, "do not add up"),
    ("greso", {"open_counts": [9, 9, 1]}, "do not add up"),
    ("prioritized", {"logit_mean": lambda old: old * np.nan}, "logit_mean that are not finite"),
    ("prioritized", {"logit_first": lambda old: old + np.inf}, "logit_first that are not finite"),
    ("prioritized", {"drift": [np.nan, 0.0]}, "drift that are not finite"),
    ("prioritized", {"logit_variance": lambda old: old - 9}, "logit_variance below 0 or"),
    ("prioritized", {"weight": lambda old: -old}, "weight below 0 or not finite"),
    ("prioritized", {"weight": lambda old: old * np.inf}, "weight below 0 or not finite"),
    ("prioritized", {"logit_clock": lambda old: old + 9}, "outcomes from outside the run"),
    ("prioritized", {"logit_clock": lambda old: old - 0.5}, "outcomes from outside the run"),
    ("prioritized", {"cursor": 30}, "a cursor of 30"),
]


@pytest.mark.parametrize(("name", "edits", "complaint"), EDITS)
def test_content_that_cannot_be_is_refused_before_anything_is_overwritten(
    name: str, edits: dict[str, Any], complaint: str
) -> None:
    saved, allocator = in_the_middle_of_a_round(name).state_dict(), create_allocator(name, SETTINGS)
    edited = {key: edit(saved[key]) if callable(edit) else np.array(edit) for key, edit in edits.items()}
    before = allocator.state_dict()
    with pytest.raises(ValueError, match=f"the state has .*{complaint}.*: it was edited"):
        allocator.load_state_dict(saved | edited)
    after = allocator.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    allocator.load_state_dict(saved)


@pytest.mark.parametrize(
    ("edits", "complaint"),
    [
        ({"pending_indices": np.array([30])}, "do not fit the prompts"),
        ({"pending_rollouts": np.array([4])}, "do not fit the prompts"),
        ({"rounds_closed": np.array(11)}, "round 11 of 10"),
        ({"rollouts_taken": np.array(481)}, "481 rollouts in its steps, outside the budget of 480"),
        ({"rollouts_taken": np.array(-4)}, "outside the budget"),
        ({"allocator_round": np.array(11)}, "round 11 of 10"),
        ({"round_open": None}, "no round_open"),
    ],
)
def test_steps_refuse_content_that_cannot_be_and_stay_as_they_were(edits: dict[str, Any], complaint: str) -> None:
    steps = Steps(create_allocator("cero", SETTINGS), SETTINGS)
    saved = steps.state_dict()
    edited = {key: array for key, array in (saved | edits).items() if array is not None}
    with pytest.raises(ValueError, match=f"the state has .*{complaint}"):
        steps.load_state_dict(edited)
    after = steps.state_dict()
    assert all(np.array_equal(saved[key], after[key]) for key in saved)


@pytest.mark.parametrize("settings", ["absent", None, [1]])
def test_a_header_without_settings_is_refused(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    header = {key: value for key, value in (asdict(HEADER) | {"settings": settings}).items() if value != "absent"}
    monkeypatch.setattr("verl_pods_cero.core.state.asdict", lambda _: header)
    save_state(tmp_path / "s.npz", HEADER, ARRAYS)
    with pytest.raises(StateError, match="does not say its settings"):
        load_state(tmp_path / "s.npz", HEADER)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_states_mode_follows_the_umask_as_that_of_verls_files_does(tmp_path: Path, mask: int, mode: int) -> None:
    former = os.umask(mask)
    try:
        save_state(tmp_path / "s.npz", HEADER, ARRAYS)
    finally:
        os.umask(former)
    assert (tmp_path / "s.npz").stat().st_mode & 0o777 == mode


def test_a_difference_is_worded_under_the_callers_names(saved: Path) -> None:
    other = replace(HEADER, settings=SETTINGS.as_dict() | {"rho": 0.5})
    with (
        pytest.raises(StateError, match=r"saved with pods_cero\.allocator\.rho=1\.0, this run has 0\.5"),
        option_names({"rho": "pods_cero.allocator.rho"}),
    ):
        load_state(saved, other)


def test_a_state_of_before_a_setting_existed_belongs_to_a_run_that_leaves_it_alone(tmp_path):
    before = replace(
        HEADER, settings={k: v for k, v in SETTINGS.as_dict().items() if k not in ("focus", "drift_noise")}
    )
    save_state(tmp_path / "state.npz", before, {})
    assert load_state(tmp_path / "state.npz", HEADER) == {}
    other = replace(HEADER, settings=replace(SETTINGS, focus=1.0).as_dict())
    with pytest.raises(StateError, match="focus"):
        load_state(tmp_path / "state.npz", other)
