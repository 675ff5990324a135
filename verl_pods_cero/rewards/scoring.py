"""One reward function for every data set, in verl's signature."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from verl_pods_cero.errors import OptionError, nearest, option_names
from verl_pods_cero.rewards.data_sources import data_sources
from verl_pods_cero.rewards.grade_school import score_number
from verl_pods_cero.rewards.letters import score_letter
from verl_pods_cero.rewards.math_process import require_math_verify
from verl_pods_cero.rewards.mathematics import score_expression
from verl_pods_cero.rewards.options import RewardOptions
from verl_pods_cero.rewards.shape import format_term, tags_term

# The same for every data source: verl collates a batch by the keys of its first row.
RESULT_KEYS = ("score", "acc", "format", "tags", "pred")

_SCORERS = {
    "openai/gsm8k": "number",
    "sciknoweval": "letter",
    "lighteval/MATH": "expression",
    "DigitalLearningGmbH/MATH-lighteval": "expression",
    "HuggingFaceH4/MATH-500": "expression",
    "math": "expression",
    "math_dapo": "expression",
    "math_dapo_reasoning": "expression",
}

# A prediction is dumped and counted in majority votes; a runaway one should not travel with every row.
_LONGEST_PREDICTION = 200


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, object] | None = None,  # noqa: ARG001 - verl's signature
    **kwargs: object,
) -> dict[str, float | str]:
    """Score one response: score = acc + format_weight * format + tag_weight * tags.

    Args:
        data_source: Whose rows these are; decides how the answer is read and compared.
        solution_str: The response.
        ground_truth: The reference answer.
        extra_info: Not used.
        kwargs: `reward.custom_reward_function.reward_kwargs`, see `RewardOptions`.

    Returns:
        `score` (the reward), `acc` (1 or 0: never shaped), `format` and `tags` (both 0..1, computed at any
        weight), `pred` (the answer read, which gives verl its majority votes).

    Raises:
        OptionError: a data source without a scorer, or a wrong option.
        PluginError: a row of mathematics, and math-verify is not installed (`check_setup` tells beforehand).

    >>> result = compute_score("sciknoweval", "Answer: B", "B")
    >>> result["score"], result["acc"], result["pred"]
    (1.0, 1.0, 'B')
    """
    options = RewardOptions.parse(kwargs)
    correct, prediction = _answer(data_source, solution_str, str(ground_truth), options)
    accuracy, layout, tags = float(correct), format_term(solution_str), tags_term(solution_str)
    return {
        "score": accuracy + options.format_weight * layout + options.tag_weight * tags,
        "acc": accuracy,
        "format": layout,
        "tags": tags,
        "pred": prediction[:_LONGEST_PREDICTION],
    }


def check_setup(files: Iterable[str], **reward_kwargs: object) -> None:
    """Check before training that every row of these files can be scored.

    verl counts a scorer that raises as a failed rollout and trains on: a missing library would show as
    missing rows. This is the check to make before Ray starts.

    Args:
        files: Files in verl's schema (`data.train_files`, `data.val_files`); remote ones are not looked at.
        reward_kwargs: The options that `compute_score` will get.

    Raises:
        OptionError: a data source without a scorer, a file that cannot be read, or a wrong option.
        PluginError: rows of mathematics, and math-verify is not installed.
    """
    RewardOptions.parse(reward_kwargs)
    for file in files:
        if "://" in file:
            continue
        with option_names({"data_source": f"{file}: data_source"}):
            for source in data_sources(Path(file).expanduser()):
                if scorer_name(source) == "expression":
                    require_math_verify()


def scorer_name(data_source: str) -> str:
    """Return which scorer a data source has: "number", "letter" or "expression".

    Raises:
        OptionError: it has none.

    >>> scorer_name("aime24")
    'expression'
    """
    # verl's own rule: every name that begins with "aime" is a competition with integer answers
    name = _SCORERS.get(data_source) or ("expression" if str(data_source).startswith("aime") else None)
    if name is None:
        raise OptionError("data_source", "has no scorer", data_source, nearest(str(data_source), [*_SCORERS, "aime24"]))
    return name


def _answer(data_source: str, response: str, ground_truth: str, options: RewardOptions) -> tuple[bool, str]:
    name = scorer_name(data_source)
    if name == "number":
        return score_number(response, ground_truth, options.gsm8k_method)
    if name == "letter":
        return score_letter(response, ground_truth)
    return score_expression(response, ground_truth, options.math_timeout, options.math_processes)
