"""The quickstart's model: a tiny Qwen2 that can add a little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_pods_cero.quickstart.tasks import Sum

# Shorter than a chat needs, and without roles: a prompt is a handful of tokens.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
)

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


@dataclass(frozen=True)
class ModelSettings:
    """The size of the model and how it is warm-started."""

    hidden_size: int = 96
    intermediate_size: int = 256
    layers: int = 2
    # vLLM's attention on the CPU takes heads of width 32, and not of 24.
    heads: int = 3
    steps: int = 200
    batch_size: int = 256
    learning_rate: float = 3e-3
    # How much rarer a sum is in the warm start for each level of difficulty.
    rarity: float = 3.0
    threads: int = 2


def byte_characters() -> list[str]:
    """The printable stand-ins that byte-level tokenizers use for the 256 bytes, in byte order.

    >>> characters = byte_characters()
    >>> len(set(characters)), characters[ord("7")], characters[ord(" ")]
    (256, '7', 'Ġ')
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_in = {byte: byte for byte in printable} | {byte: 256 + i for i, byte in enumerate(others)}
    return [chr(stand_in[byte]) for byte in range(256)]


def make_tokenizer() -> Any:
    """Make a Qwen2 tokenizer that knows the 256 bytes, three special tokens and no merges."""
    from transformers import Qwen2Tokenizer

    vocabulary = {token: i for i, token in enumerate([*byte_characters(), PAD, START, END])}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[],
        eos_token=END,
        pad_token=PAD,
        unk_token=PAD,
        additional_special_tokens=[START],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(settings: ModelSettings, tokenizer: Any, *, seed: int) -> Any:
    """Make the model with random weights.

    Its vocabulary is exactly the tokenizer's: verl's rollout never samples a token beyond it,
    and the trainer's log-probabilities would count such tokens all the same.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config).float()


def encode(sums: Sequence[Sum], tokenizer: Any) -> tuple[Any, Any]:
    """Turn sums into token ids and labels, padded on the right.

    Returns:
        Ids and labels, both (sums, tokens). Labels are -100 but for the answer and its end.
    """
    import torch

    prompts, texts = [], []
    for each in sums:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": each.prompt}], add_generation_prompt=True, tokenize=False
        )
        prompts.append(tokenizer(prompt)["input_ids"])
        texts.append(prompts[-1] + tokenizer(each.answer + END)["input_ids"])
    width = max(map(len, texts))
    ids = torch.full((len(sums), width), tokenizer.pad_token_id)
    labels = torch.full((len(sums), width), -100)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        ids[row, : len(text)] = torch.tensor(text)
        labels[row, len(prompt) : len(text)] = ids[row, len(prompt) : len(text)]
    return ids, labels


def warm_start(model: Any, tokenizer: Any, sums: Sequence[Sum], settings: ModelSettings, *, seed: int) -> float:
    """Teach the model some arithmetic: easy sums often, hard sums seldom.

    It leaves off while the model is unsure of most sums, so that the rate of right answers differs
    from sum to sum: what a rollout filter and a rollout allocator live on.

    Args:
        model: The model, changed in place.
        tokenizer: Its tokenizer.
        sums: What it may see.
        settings: Steps, batch size, learning rate (cosine decay) and rarity.
        seed: The seed of the batches.

    Returns:
        The last step's loss, in nats a token.
    """
    import torch

    threads = torch.get_num_threads()
    # Another number of threads adds numbers in another order: fixed, for equal weights.
    torch.set_num_threads(settings.threads)
    try:
        generator = torch.Generator().manual_seed(seed)
        ids, labels = encode(sums, tokenizer)
        weights = torch.tensor([settings.rarity**-each.difficulty for each in sums])
        optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=settings.learning_rate, total_steps=settings.steps, pct_start=0.1
        )
        model.train()
        for _ in range(settings.steps):
            chosen = torch.multinomial(weights, settings.batch_size, replacement=True, generator=generator)
            loss = model(input_ids=ids[chosen], labels=labels[chosen]).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        return float(loss.detach())
    finally:
        torch.set_num_threads(threads)


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer the way `from_pretrained` reads them."""
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
