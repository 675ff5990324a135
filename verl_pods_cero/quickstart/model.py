"""The quickstart's model: a tiny Qwen2 that can add a little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_pods_cero.quickstart.tasks import Sum

if TYPE_CHECKING:
    import torch

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
    intermediate_size: int = 128
    layers: int = 2
    # vLLM's attention on the CPU takes heads of width 32, and not of 24.
    heads: int = 3
    # Standard deviation of the first weights: the usual 0.02 starts slowly at this width.
    initializer_range: float = 0.1
    steps: int = 500
    batch_size: int = 64
    learning_rate: float = 3e-3
    # How often the warm-started model gives up, for each level of difficulty.
    give_up: tuple[float, ...] = (0.15, 0.45, 0.7, 0.85)


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
        max_position_embeddings=1024,
        initializer_range=settings.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config).float()


def encode(sums: Sequence[Sum], tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn sums into token ids and labels, padded on the right.

    Returns:
        Ids and labels, both (sums, tokens). A label is the next token where that belongs to the
        answer or ends it, and -100 elsewhere.
    """
    import torch

    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": each.prompt}], add_generation_prompt=True, tokenize=False
        )
        for each in sums
    ]
    texts = [
        (tokenizer(prompt)["input_ids"], tokenizer(each.answer + END)["input_ids"])
        for prompt, each in zip(prompts, sums, strict=True)
    ]
    width = max(len(prompt) + len(answer) for prompt, answer in texts)
    ids = torch.full((len(sums), width), tokenizer.pad_token_id)
    labels = torch.full((len(sums), width), -100)
    for row, (prompt, answer) in enumerate(texts):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[row, len(prompt) - 1 : len(prompt) + len(answer) - 1] = torch.tensor(answer)
    return ids, labels


def warm_start(model: Any, tokenizer: Any, sums: Sequence[Sum], settings: ModelSettings, *, seed: int) -> float:
    """Teach the model to add, and to give up: the harder the sum, the more often it says nothing.

    So the rate of right answers differs from sum to sum, from nearly 0 to nearly 1, which is what
    a rollout filter lives on. And there is something to learn for which a few hundred rollouts are
    enough: to answer all the same.

    Args:
        model: The model, changed in place.
        tokenizer: Its tokenizer.
        sums: What it learns.
        settings: Steps, sums per step, highest learning rate, and how often it is to give up.
        seed: The seed of the batches.

    Returns:
        The last step's loss, in nats a sum.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    ids, labels = encode(sums, tokenizer)
    give_up = torch.tensor([settings.give_up[each.difficulty] for each in sums])
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=settings.learning_rate, total_steps=settings.steps, pct_start=0.1
    )
    model.train()
    with _one_thread():
        for _ in range(settings.steps):
            batch = torch.randperm(len(sums), generator=generator)[: settings.batch_size]
            logits = model(input_ids=ids[batch]).logits
            loss = answer_loss(logits, labels[batch], give_up[batch], tokenizer.eos_token_id)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()
    return float(loss.detach())


@contextmanager
def _one_thread() -> Iterator[None]:
    # Two threads are no faster on so little, ten times slower on a busy machine, and would add
    # numbers in another order: one makes the same model everywhere.
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def answer_loss(logits: torch.Tensor, labels: torch.Tensor, give_up: torch.Tensor, end: int) -> torch.Tensor:
    """Cross-entropy of a target that ends at once with probability g, and else is the answer.

    Only the first token is uncertain: its loss is (1 - g) times the answer's plus g times the
    end's. Taking the expectation, and not samples, is what makes the warm start a short one.

    Args:
        logits: (B, T, V).
        labels: (B, T), -100 where nothing is to be predicted.
        give_up: (B,), g of each row.
        end: The token that ends a response.

    Returns:
        The mean over rows, in nats.
    """
    import torch

    log_probs = logits.log_softmax(-1)
    predicted = labels >= 0
    answer = -log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1) * predicted
    rows, first = torch.arange(len(labels)), predicted.int().argmax(1)
    ending = -log_probs[rows, first, end]
    return (answer.sum(1) + give_up * (ending - answer[rows, first])).mean()


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer the way `from_pretrained` reads them."""
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
