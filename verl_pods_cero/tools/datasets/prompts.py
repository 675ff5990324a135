"""Prompts: the chat that asks a question, and how a model reads it."""

from __future__ import annotations

from typing import Any

from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.datasets.catalog import Catalogued

STYLES = ("native", "tags")

# The layout that PODS' shaped reward looks for.
_TAGS = (
    "Think about the question first and check your own steps; then give the final answer.\n"
    "Write your response in exactly this form:\n"
    "<think>\nyour reasoning\n</think>\n<answer>\n{what}\n</answer>"
)


def messages(question: str, entry: Catalogued, style: str) -> list[dict[str, str]]:
    """Return the chat that asks a question.

    Args:
        question: The text, choices included.
        entry: The data set.
        style: "native" asks for the answer the way its scorer in verl expects it; "tags" asks for
            `<think>` and `<answer>`, in a system message.
    """
    if style == "native":
        return [{"role": "user", "content": entry.instruction.format(question=question)}]
    what = "the letter of the right option, alone" if entry.answers == "letter" else "the answer, alone"
    return [{"role": "system", "content": _TAGS.format(what=what)}, {"role": "user", "content": question}]


def load_tokenizer(name: str | None) -> Any:
    """Return the tokenizer of a model, or None where no name is given.

    Raises:
        OptionError: there is no such model, here or on the hub.
    """
    if name is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise OptionError(
            "--tokenizer",
            "must be a model's folder, or its name on the hub when that can be reached",
            name,
            "correct it, or leave it out to see the plain messages",
        ) from error


def render(chat: list[dict[str, str]], tokenizer: Any) -> str:
    r"""Return a chat as the model reads it, by the tokenizer's template; without a tokenizer, by role.

    Raises:
        OptionError: the tokenizer has no template, or one that refuses this chat (its system message, say).

    >>> render([{"role": "user", "content": "2 + 2?"}], None)
    '[user]\n2 + 2?'
    """
    if tokenizer is None:
        return "\n".join(f"[{message['role']}]\n{message['content']}" for message in chat)
    from jinja2 import TemplateError  # transformers needs it for templates

    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except (ValueError, TemplateError) as error:
        roles = " and ".join(f"a {message['role']} message" for message in chat)
        raise OptionError(
            "--tokenizer",
            f"must have a chat template that takes {roles} ({error})",
            tokenizer.name_or_path,
            "name an instruction-tuned model; with --style native there is no system message",
        ) from error
