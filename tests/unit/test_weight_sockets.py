"""Weights of two runs on one machine travel through sockets of different names."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch

from verl_pods_cero import plugin
from verl_pods_cero.hooks import patches, weight_sockets
from verl_pods_cero.hooks.weight_sockets import VARIABLE, name_run, separate_runs

HANDLE = "ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-0.sock"


@pytest.fixture
def verls(vllm_rollout, monkeypatch):
    module = import_module(weight_sockets.MODULE)
    monkeypatch.setenv(VARIABLE, "aaaaaaaa")
    separate_runs(module)
    yield module
    patches.WEIGHT_SENDER.restore()
    patches.WEIGHT_RECEIVER.restore()


def test_both_ends_of_a_run_meet_and_those_of_two_runs_do_not(verls, monkeypatch):
    sender = verls.BucketedWeightSender(zmq_handle=HANDLE, bucket_size_mb=1, use_shm=True)
    receiver = verls.BucketedWeightReceiver(HANDLE, device=torch.device("cpu"), use_shm=True)
    assert sender.zmq_handle == receiver.zmq_handle != HANDLE
    monkeypatch.setenv(VARIABLE, "bbbbbbbb")
    assert verls.BucketedWeightSender(HANDLE).zmq_handle != sender.zmq_handle


def test_a_run_is_named_once_in_what_ray_gives_its_processes(configure):
    config = configure()
    name_run(config)
    name = config.ray_kwargs.ray_init.runtime_env.env_vars[VARIABLE]
    name_run(config)
    assert config.ray_kwargs.ray_init.runtime_env.env_vars[VARIABLE] == name
    other = configure()
    name_run(other)
    assert other.ray_kwargs.ray_init.runtime_env.env_vars[VARIABLE] != name


def test_the_names_that_the_plugin_spells_out_are_those_of_the_module():
    source = Path(plugin.__file__).read_text()
    assert f'"{VARIABLE}" in os.environ' in source
    assert f'"{weight_sockets.MODULE}"' in source
