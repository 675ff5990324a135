"""A dry run says what a training command would do, in the numbers that one would work out by hand."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from omegaconf import OmegaConf

from tests.unit.test_allocation import play
from verl_pods_cero.core.allocators import KNOWN, create_allocator
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.schema import AllocatorOptions, FilterOptions, PodsCeroOptions
from verl_pods_cero.options.scorer import value_keys
from verl_pods_cero.tools.dry_run import add_arguments, memory, run
from verl_pods_cero.tools.dry_run.checks import Checked
from verl_pods_cero.tools.dry_run.work import run_work


@pytest.fixture
def dry_run(verl_checks, tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder, with a stand-in for vLLM and nothing in the model cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "no-models"))

    def command(*arguments: str) -> tuple[int, str, str]:
        commands = argparse.ArgumentParser().add_subparsers()
        add_arguments(commands.add_parser("dry-run"))
        status = run(commands._name_parser_map["dry-run"].parse_args(list(arguments)))
        out, err = capsys.readouterr()
        return status, out, err

    return command


# What a run on verl's default configuration says at the least.
PLAIN = [
    "data.train_batch_size=16",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true",
]


def numbers(out: str) -> dict[str, list[str]]:
    """The cells of every row of the tables, by its label."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


@pytest.fixture
def quickstart(many_rows, tmp_path):
    """Arguments of the CPU recipe, with its files and a model of 300 tokens."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"vocab_size": 300}))
    files = (f"data.train_files={many_rows}", f"data.val_files={many_rows}")
    return ("--config-name=quickstart_cpu", *files, f"actor_rollout_ref.model.path={tmp_path / 'model'}")


@pytest.fixture(scope="session")
def many_rows(recipe_data):
    return str(recipe_data / "gsm8k" / "train.parquet")


def test_the_quickstart_in_numbers_worked_out_by_hand(dry_run, quickstart):
    status, out, err = dry_run(*quickstart)
    assert (status, err) == (0, "")
    # 8 prompts, n = 16, m = 4, 2 prompts an update, 16 + 4 tokens, 15 steps, 128 rows; float32
    assert (
        numbers(out).items()
        >= {
            "prompts": ["8", "8"],
            "rollouts generated": ["128", "128"],
            "tokens generated, at most": ["7,680", "7,680"],
            "rows in the update": ["32", "128", "25 %"],
            "padded to a multiple of": ["4", "4"],
            "tokens in the update, at most": ["640", "2,560", "25 %"],
            "rows in passes without gradient (old policy)": ["32", "128", "25 %"],
            "optimiser updates": ["4", "4"],
            "rows an update": ["8", "32", "25 %"],
            "steps, at most": ["15", "15"],
            "optimiser updates, at most": ["60", "60"],
            "rollouts generated, at most": ["1,920", "1,920"],
            "rows in updates, at most": ["480", "1,920", "25 %"],
            "tokens in updates, at most": ["9,600", "38,400", "25 %"],
            "epochs of M = 128 prompts: rollouts / (M n)": ["0.94", "0.94"],
            "longest sequence, tokens": ["20", "20"],
            "tokens of a micro-batch, at most": ["160", "640", "25 %"],
            "logits of a micro-batch, at most": ["188 KiB", "750 KiB", "25 %"],
            "logits of a log-prob micro-batch, at most": ["750 KiB", "2.93 MiB", "25 %"],
            "sequences in an engine at a time, at most": ["128", "128"],
            "their KV-cache tokens, at most": ["2,560", "2,560"],
            "values that the driver reads": ["4 KiB", "4 KiB"],
        }.items()
    )


def test_pods_halves_what_follows_from_the_rows_of_the_update_and_nothing_else(dry_run, quickstart):
    _, out, _ = dry_run(*quickstart, "pods_cero.filter.keep=null", "pods_cero.filter.keep_fraction=0.5")
    halved = {label for label, cells in numbers(out).items() if cells[2:] == ["50 %"]}
    assert all(cells[2:] in ([], ["50 %"]) for cells in numbers(out).values())
    update = {"rows in the update", "tokens in the update, at most", "rows an update", "rows an update on a GPU"}
    passes = {"rows in passes without gradient (old policy)"}
    run = {"rows in updates, at most", "tokens in updates, at most"}
    sizes = {f"{what} of a{kind} micro-batch, at most" for what in ("tokens", "logits") for kind in ("", " log-prob")}
    assert halved == update | passes | run | sizes | {"rows of a micro-batch, at full length"}


def test_a_published_pods_recipe_in_numbers_worked_out_by_hand(dry_run, recipe_data):
    status, out, _ = dry_run("--config-name=pods_gsm8k_qwen2.5_3b_full", f"recipe.data_folder={recipe_data}")
    # 32 prompts on 8 GPUs, n = 128, m = 32, micro-batches of 32 and 8 rows, 512 + 1024 tokens, 233 steps
    assert status == 0
    assert (
        numbers(out).items()
        >= {
            "rollouts generated": ["4,096", "4,096"],
            "rows in the update": ["1,024", "4,096", "25 %"],
            "padded to a multiple of": ["256", "256"],
            "tokens in the update, at most": ["1,572,864", "6,291,456", "25 %"],
            "optimiser updates": ["1", "1"],
            "rows an update on a GPU": ["128", "512", "25 %"],
            # the accumulation steps of the paper
            "micro-batches an update on a GPU, at most": ["4", "16", "25 %"],
            "steps, at most": ["233", "233"],
            "rollouts generated, at most": ["954,368", "954,368"],
            "rows of a micro-batch, at full length": ["32", "32"],
            "tokens of a micro-batch, at most": ["49,152", "49,152"],
            "logits of a micro-batch, at most": ["unknown", "unknown"],
            "tokens of a log-prob micro-batch, at most": ["12,288", "12,288"],
            "their KV-cache tokens, at most": ["786,432", "786,432"],
        }.items()
    )
    assert "Logits are unknown: model config not on this machine (Qwen/Qwen2.5-3B-Instruct)." in out


def test_a_published_cero_recipe_in_numbers_worked_out_by_hand(dry_run, recipe_data):
    status, out, _ = dry_run("-cn", "cero_round_dapo_qwen3_4b_base", f"recipe.data_folder={recipe_data}")
    assert status == 0
    assert (
        numbers(out).items()
        >= {
            "prompts, at most": ["66", "64", "103 %"],
            "rows in the update, at most": ["528", "512", "103 %"],
            "rows an update, at most": ["264", "256", "103 %"],
            # 33 rows of 4096 tokens, 16384 at a time
            "micro-batches an update on a GPU, at most": ["9", "8", "112 %"],
            "steps, at most": ["500", "500"],
            "rollouts generated, at most": ["256,000", "256,000"],
            "epochs of M = 8,960 prompts: rollouts / (M n)": ["3.57", "3.57"],
            "allocator": ["cero, schedule round"],
            "B, budget of the run, rollouts": ["256,000"],
            "K, rounds": ["500"],
            "C, capacity of a round, rollouts": ["528"],
            "N_max, most rollouts of a prompt in a round": ["8"],
            "g, rollouts handed out together": ["4"],
        }.items()
    )


@pytest.mark.parametrize("keep", [None, 2, 6])
@pytest.mark.parametrize("schedule", ["round", "epoch"])
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_no_step_of_an_allocator_exceeds_what_is_printed_as_its_most(name, schedule, keep):
    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 6},
            "actor_rollout_ref": {"rollout": {"n": 8}},
            "trainer": {"total_training_steps": 20, "total_epochs": 5},
        }
    )
    allocator = AllocatorOptions(enable=True, name=name, schedule=schedule, unit=4, n_max=12)
    filtering = FilterOptions(enable=keep is not None, keep=keep)
    work, settings = run_work(Checked(config, PodsCeroOptions(filtering, allocator), False, False, 30, ()))
    # verl ends a run at its last step, whatever is left of the budget.
    steps = play(Steps(create_allocator(name, settings), settings), steps=work.steps)
    rows = [int(np.minimum(step.rollouts, keep or step.rollouts).sum()) for step in steps]
    assert max(len(step) for step in steps) <= work.prompts
    assert max(step.total for step in steps) <= work.rollouts
    assert max(rows) <= work.rows
    assert sum(step.total for step in steps) <= work.all_rollouts
    assert sum(rows) <= work.all_rows


def test_a_rollouts_values_have_the_size_that_is_printed():
    most = PodsCeroOptions(FilterOptions(True, ranking_key="a"), AllocatorOptions(True, success_key="b"))
    assert 8 * len(value_keys(most)) == memory.DRIVER_BYTES


# ------------------------------------------------------------------ what is wrong, or missing


def test_a_wrong_option_ends_with_the_message_of_the_training_run(dry_run, recipe, recipe_data, verl_checks):
    config = recipe("pods_gsm8k_qwen2.5_3b_full")
    config.pods_cero.filter.keep = 200
    with pytest.raises(OptionError) as training:
        verl_checks(config)
    arguments = ("--config-name=pods_gsm8k_qwen2.5_3b_full", f"recipe.data_folder={recipe_data}")
    assert dry_run(*arguments, "pods_cero.filter.keep=200") == (2, "", f"error: {training.value}\n")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pods_cero.filter.kep=4", "did you mean 'keep'?"),
        ("trainer.total_step=4", "Could not override 'trainer.total_step'."),
        ("actor_rollout_ref.rollout.temperature=0", "validation gen temperature should be greater than 0"),
        ("data.train_batch_size=256", "data.train_batch_size must be at most the number of rows"),
        ("actor_rollout_ref.rollout.n=8,16", "To sweep over it, add --multirun"),
        ("data.max_prompt_length=foo", "data.max_prompt_length must be a whole number"),
        ("trainer.total_training_steps=0", "trainer.total_training_steps must be a whole number, at least 1"),
        ("trainer.total_training_steps=inf", "trainer.total_training_steps must be a whole number, at least 1"),
        ("trainer.n_gpus_per_node=1e308", "trainer.n_gpus_per_node must be a whole number, at least 1"),
        ("actor_rollout_ref.rollout.max_model_len=19", "rollout.max_model_len must be at least the longest sequence"),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=19", "Fix: set it to 20 or more"),
        ("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=19", "max_response_length = 20 tokens, got 19"),
    ],
)
def test_every_wrong_option_is_one_line_and_status_2(override, message, dry_run, quickstart):
    status, out, err = dry_run(*quickstart, override)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


LORA = ("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.rollout.name=vllm")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.n_gpus_per_node=1e308"], "trainer.n_gpus_per_node must be a whole number"),
        (["algorithm.adv_estimator=gae"], "critic.model.path must name a model where a critic is trained"),
        (
            [*LORA, "actor_rollout_ref.rollout.layered_summon=true"],
            "rollout.load_format must load the model's weights with LoRA and layered_summon=true",
        ),
        (
            ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=null"],
            "filter_groups.metric must be",
        ),
    ],
)
def test_what_verl_refuses_when_its_engines_are_up_is_seen_in_a_plain_run_too(overrides, message, dry_run):
    status, out, err = dry_run("algorithm.adv_estimator=grpo", *PLAIN, *overrides)
    assert (status, out) == (2, "")
    assert message in err


# verl 0.9.0 has no metric by default.
REPLACED = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc")


def test_a_plain_run_is_printed_without_data_files_and_without_a_bound_where_prompts_are_replaced(dry_run):
    files = ["data.train_files=null", "data.val_files=null"]
    status, out, err = dry_run("algorithm.adv_estimator=grpo", *PLAIN, *files, *REPLACED)
    assert (status, err) == (0, "")
    assert numbers(out)["rollouts generated"] == ["128"]
    assert "Rollouts have no bound: algorithm.filter_groups.enable=true" in out
    assert "The training rows cannot be counted" in out


def test_an_unknown_recipe_or_choice_gets_its_nearest_match(dry_run):
    status, _, err = dry_run("--config-name=quikstart_cpu")
    assert status == 2
    assert err.startswith(
        "error: --config-name names no recipe, got 'quikstart_cpu'. Fix: did you mean 'quickstart_cpu'?"
    )
    status, _, err = dry_run("--config-dir=nowhere", "--config-name=mine")
    assert (status, err.split(" Fix:")[0]) == (2, "error: --config-dir must be a folder that exists, got 'nowhere'.")
    status, _, err = dry_run("--config-name=pods_gsm8k_qwen2.5_3b_full", "hardware=gpus_9")
    assert status == 2
    assert err.startswith("error: hardware/gpus_9 is no configuration. Fix: did you mean 'gpus_8'?")


def test_hydras_other_uses_are_refused(dry_run):
    status, _, err = dry_run("--config-name=quickstart_cpu", "--cfg", "job")
    assert status == 2
    assert "python -m verl.trainer.main_ppo --cfg" in err


def test_without_data_files_the_rest_is_printed(dry_run):
    status, out, err = dry_run("--config-name=pods_cero_gsm8k_qwen2.5_3b_lora", "recipe.data_folder=/nowhere")
    assert (status, err) == (0, "")
    assert "not checked: data.train_files=/nowhere/gsm8k/train.parquet" in out
    assert "Fix: write them with `verl-pods-cero data <name>`, or give their number as data.train_max_samples" in out
    found = numbers(out)
    assert found["rollouts generated"] == ["unknown", "256"]
    assert found["longest sequence, tokens"] == ["1,024", "1,024"]
    assert found["epochs: rollouts / (M n)"] == ["unknown", "unknown"]
    _, out, _ = dry_run("--config-name=pods_cero_gsm8k_qwen2.5_3b_lora", "data.train_max_samples=7473")
    # Room for 33/32 of plain GRPO's eight prompts, in whole prompts: nine.
    assert numbers(out)["rows in the update, at most"] == ["72", "256", "28.1 %"]
    assert numbers(out)["steps, at most"] == ["2,000", "2,000"]


@pytest.mark.parametrize("error", [ImportError("no module"), ValueError("vllm version None")], ids=["import", "value"])
def test_without_vllm_the_lora_rank_alone_is_not_checked(error, dry_run, recipe_data, monkeypatch):
    def missing(name: str, *_: object) -> None:
        if name == "verl.workers.rollout.vllm_rollout":
            raise error

    for module in ("verl.workers.rollout.vllm_rollout", "verl.workers.rollout.vllm_rollout.utils"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [types.SimpleNamespace(find_spec=missing), *sys.meta_path])
    arguments = ("--config-name=pods_gsm8k_qwen2.5_3b_lora", f"recipe.data_folder={recipe_data}")
    status, out, _ = dry_run(*arguments)
    assert status == 0
    assert f"Not checked: the LoRA rank, for which verl asks vLLM ({error})." in out
    assert numbers(out)["rows in the update"] == ["16", "64", "25 %"]
    assert dry_run(*arguments, "pods_cero.filter.keep=65")[0] == 2


# ------------------------------------------------------------------ arguments


def test_nothing_is_started_made_or_left_behind(dry_run, quickstart, tmp_path):
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    before = HydraConfig.instance().cfg, sorted(tmp_path.rglob("*"))
    dry_run(*quickstart)
    assert (HydraConfig.instance().cfg, sorted(tmp_path.rglob("*"))) == before
    assert not GlobalHydra.instance().is_initialized()


def test_interpolations_into_hydra_have_their_value(recipe_data, tmp_path, monkeypatch):
    from verl_pods_cero.tools.dry_run.composition import compose_jobs

    monkeypatch.chdir(tmp_path)
    _, [job] = compose_jobs(["--config-name=grpo_gsm8k_qwen2.5_3b_lora", "hydra.run.dir=here/${hydra.job.name}"])
    assert job.config.trainer.default_local_dir == f"{tmp_path}/here/main_ppo/checkpoints"
    assert job.config.data.train_files == f"{tmp_path}/data/gsm8k/train.parquet"
    assert "hydra" not in job.config


def test_a_sweep_prints_its_tables_for_each_job(dry_run, recipe_data):
    status, out, _ = dry_run("--config-name=sweep_m_gsm8k_qwen2.5_3b_lora", f"recipe.data_folder={recipe_data}")
    assert status == 0
    parts = out.split("sweep_m_gsm8k_qwen2.5_3b_lora, job ")[1:]
    assert [part.splitlines()[0] for part in parts] == [
        f"{number}: pods_cero.filter.keep={m}" for number, m in enumerate((16, 8, 4, 2))
    ]
    assert [numbers(part)["rows in the update"][0] for part in parts] == ["16", "8", "4", "2"]


def test_a_wrong_job_of_a_sweep_does_not_hide_the_others(dry_run, quickstart):
    status, out, err = dry_run("-m", *quickstart, "pods_cero.filter.keep=99,8")
    assert status == 2
    assert err.startswith("error: quickstart_cpu, job 0: pods_cero.filter.keep=99: pods_cero.filter.keep must be")
    assert "quickstart_cpu, job 1: pods_cero.filter.keep=8" in out
    assert numbers(out)["rows in the update"] == ["64", "128", "50 %"]


def test_a_recipe_of_the_users_own_folder_is_found(dry_run, quickstart, tmp_path):
    (tmp_path / "mine").mkdir()
    text = "defaults: [quickstart_cpu, _self_]\npods_cero: {filter: {enable: false, keep: null}}\n"
    (tmp_path / "mine" / "own.yaml").write_text(text)
    status, out, _ = dry_run("-cd", "mine", "--config-name=own", *quickstart[1:])
    assert status == 0
    assert numbers(out)["rows in the update"] == ["128"]
    assert "Filter and allocator are off." in out


def test_every_argument_reaches_hydra_as_it_was_written():
    commands = argparse.ArgumentParser()
    add_arguments(commands.add_subparsers().add_parser("dry-run"))
    arguments = ["--config-name=x", "-m", "-cd", "folder", "+a.b=1", "~c", "--help"]
    assert commands.parse_args(["dry-run", *arguments]).arguments == arguments


def test_the_package_is_light_to_import():
    code = "import sys, verl_pods_cero.tools.dry_run; print({'hydra', 'verl', 'rich', 'omegaconf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_page_shows_what_is_printed(dry_run, recipe_data, repository, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    # The commands of the page read data/ in the folder that they are run in; GSM8K has 7,473 training rows.
    (tmp_path / "data").symlink_to(recipe_data)
    rows = pq.read_table(recipe_data / "gsm8k" / "train.parquet").take(pa.array([0] * 7473))
    pq.write_table(rows, tmp_path / "gsm8k.parquet")
    text = (repository / "docs" / "dry_run.md").read_text()
    samples = re.findall(r"```text\n\$ verl-pods-cero dry-run (.*)\n([\s\S]*?)```", text)
    assert len(samples) == 2
    for command, shown in samples:
        own = [f"data.train_files={tmp_path / 'gsm8k.parquet'}"] if "gsm8k" in command else []
        _, out, _ = dry_run(*command.split(), *own)
        assert shown.splitlines() == [line.rstrip() for line in out.splitlines() if line.strip()]
