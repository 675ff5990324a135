"""The quickstart's model: its tokenizer, its warm start and its place on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from verl_pods_cero.quickstart import model as models
from verl_pods_cero.quickstart.prepare import PrepareQuickstart, Settings, ensure_prepared, is_prepared
from verl_pods_cero.quickstart.tasks import Sum, all_sums

SMALL = models.ModelSettings(hidden_size=32, heads=1, intermediate_size=32, layers=1, steps=3, batch_size=8)
QUICK = Settings(train_prompts=6, validation_prompts=4, model=SMALL)


@pytest.fixture(scope="module")
def tokenizer():
    return models.make_tokenizer()


def test_the_vocabulary_is_the_tokenizers_and_covers_every_byte(tokenizer):
    model = models.make_model(SMALL, tokenizer, seed=0)
    assert model.config.vocab_size == len(tokenizer) == 256 + 3
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    text = "17+5=22, ¿sí? \n\t 中"
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


def test_a_prompt_is_a_turn_and_the_start_of_the_answer(tokenizer):
    chat = [{"role": "user", "content": "17+5"}]
    assert tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) == (
        f"{models.START}17+5{models.END}{models.START}"
    )
    assert tokenizer.eos_token == models.END


def test_labels_are_the_next_tokens_of_the_answer(tokenizer):
    ids, labels = models.encode([Sum(7, 5), Sum(17, 15)], tokenizer)
    for row, answer in ((0, "12"), (1, "32")):
        positions = labels[row] >= 0
        assert tokenizer.decode(labels[row][positions]) == answer + models.END
        assert torch.equal(labels[row][positions], ids[row].roll(-1)[positions])


def test_the_loss_is_that_of_ending_at_once_with_the_given_probability(tokenizer):
    end = tokenizer.eos_token_id
    _, labels = models.encode([Sum(7, 5)], tokenizer)
    logits = torch.randn(1, labels.shape[1], len(tokenizer), generator=torch.Generator().manual_seed(0))
    answers = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="sum")
    first = int((labels[0] >= 0).nonzero()[0])
    first_right, first_end = (-logits[0, first].log_softmax(-1)[token] for token in (labels[0, first], end))
    for probability in (0.0, 0.3, 1.0):
        loss = models.answer_loss(logits, labels, torch.tensor([probability]), end)
        torch.testing.assert_close(loss, answers + probability * (first_end - first_right))


def test_a_seed_fixes_the_weights_and_another_changes_them(tokenizer):
    def warm_started(seed):
        model = models.make_model(SMALL, tokenizer, seed=seed)
        models.warm_start(model, tokenizer, all_sums(), SMALL, seed=seed)
        return model.state_dict()

    first, again, other = warm_started(0), warm_started(0), warm_started(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_warm_start_uses_one_thread_and_gives_the_others_back(tokenizer):
    threads, used = torch.get_num_threads(), set()
    model = models.make_model(SMALL, tokenizer, seed=0)
    model.register_forward_hook(lambda *_: used.add(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        models.warm_start(model, tokenizer, all_sums(), SMALL, seed=0)
        assert (used, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(threads)


def test_what_is_prepared_is_complete_and_reused(tmp_path, capsys):
    folder = ensure_prepared(tmp_path / "made", QUICK)
    assert {path.name for path in folder.iterdir()} == {
        "model",
        "train.parquet",
        "validation.parquet",
        "settings.json",
    }
    train, validation = (pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "validation"))
    indices = [row["index"] for frame in (train, validation) for row in frame["extra_info"]]
    assert indices == list(range(10))
    assert (folder / "model" / "model.safetensors").exists()
    assert "Making" in capsys.readouterr().out

    before = (folder / "settings.json").stat().st_mtime_ns
    assert ensure_prepared(folder, QUICK) == folder
    assert (folder / "settings.json").stat().st_mtime_ns == before
    assert capsys.readouterr().out == ""


def test_other_settings_and_force_make_it_anew(tmp_path):
    folder = ensure_prepared(tmp_path / "made", QUICK)
    other = replace(QUICK, seed=1)
    assert not is_prepared(folder, other)
    ensure_prepared(folder, other)
    assert is_prepared(folder, other)
    before = (folder / "settings.json").stat().st_mtime_ns
    ensure_prepared(folder, other, force=True)
    assert (folder / "settings.json").stat().st_mtime_ns > before
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path):
    broken = replace(QUICK, train_prompts=1000)
    with pytest.raises(ValueError, match="at most 400"):
        ensure_prepared(tmp_path / "made", broken)
    assert list(tmp_path.iterdir()) == []

    folder = ensure_prepared(tmp_path / "made", QUICK)
    with pytest.raises(ValueError, match="at most 400"):
        ensure_prepared(folder, broken)
    assert is_prepared(folder, QUICK)


def test_a_folder_of_somebody_elses_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="holds something else"):
        ensure_prepared(tmp_path, QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_recipe_names_its_option_when_its_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    config = OmegaConf.create({"quickstart": {"folder": f"{tmp_path}/file/made", "seed": 0, "give_up": [0.1] * 4}})
    with pytest.raises(SystemExit, match=r"quickstart\.folder must be .* Fix: set quickstart\.folder"):
        PrepareQuickstart().on_job_start(config)


@pytest.mark.parametrize("shares", [[0.1, 0.2], [0.1, 0.2, 0.3, 1.5], [0.1, 0.2, 0.3, "often"], None])
def test_shares_of_giving_up_that_are_none_are_refused_by_name(tmp_path, shares):
    config = OmegaConf.create({"quickstart": {"seed": 0, "folder": str(tmp_path / "new"), "give_up": shares}})
    with pytest.raises(
        SystemExit, match=r"quickstart\.give_up must be 4 numbers from 0 to 1, got .* Fix: one for each"
    ):
        PrepareQuickstart().on_job_start(config)
    assert not (tmp_path / "new").exists()


def test_a_misspelt_option_is_refused_before_anything_is_made(tmp_path):
    quickstart = {"seed": 0, "folder": str(tmp_path / "new"), "give_up": [0.1] * 4}
    config = OmegaConf.create({"quickstart": quickstart, "pods_cero": {"allocator": {"nme": "cero"}}})
    with pytest.raises(SystemExit, match=r"pods_cero\.allocator\.nme .* did you mean 'name'"):
        PrepareQuickstart().on_job_start(config)
    assert not (tmp_path / "new").exists()


@pytest.mark.timeout(300)
def test_the_warm_started_model_is_sure_of_some_sums_and_unsure_of_others(tmp_path_factory):
    """The quickstart's own model: made once, in the place where the end-to-end tests look for it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = ensure_prepared()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    sums = all_sums()
    ids, labels = models.encode(sums, tokenizer)
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits.log_softmax(-1)
    chosen = log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1) * (labels >= 0)
    rates = pd.Series(chosen.sum(1).exp().numpy())

    by_difficulty = rates.groupby([each.difficulty for each in sums]).mean()
    assert list(by_difficulty) == sorted(by_difficulty, reverse=True)
    assert by_difficulty[0] > 0.7 > 0.3 > by_difficulty[3]
    assert 0.35 < rates.mean() < 0.6
    assert (rates < 0.2).mean() > 0.1
    assert (rates > 0.8).mean() > 0.05
    record = json.loads(Path(folder / "settings.json").read_text())
    assert record["digest"] == Settings().digest()
