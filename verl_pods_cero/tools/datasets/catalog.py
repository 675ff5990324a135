"""What is known of each data set: where it is, whose scorer takes it, what its prompts ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_pods_cero.errors import OptionError, nearest

# How each kind of data set asks for its answer; {question} is the question.
HASHES = '{question} Let\'s think step by step and output the final answer after "####".'
BOX = "{question} Let's think step by step and output the final answer within \\boxed{{}}."
LETTER = (
    '{question}\n\nThink step by step. Then end with one line of the form "Answer: X", '
    "where X is the letter of the right option and nothing else."
)
# The wording of DAPO-Math-17K itself, so that its results stay comparable.
ANSWER_LINE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{question}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)


@dataclass(frozen=True)
class Catalogued:
    """One data set.

    Args:
        name: What the command calls it.
        data_source: verl's name for its scorer.
        answers: How an answer is written: "number" (GSM8K), "integer", "latex" or "letter".
        instruction: The prompt's template.
        split: Which split the rows are, unless the command says otherwise.
        hub: Repository on the Hugging Face hub.
        hub_splits: The hub's name for each of our splits.
        hub_config: The hub's configuration, where there are several.
        ability: verl's `ability` column.
        test_fraction: Share of the questions set aside as a test split.
        deduplicate: Whether rows that repeat a question and its answer are removed.
    """

    name: str
    data_source: str
    answers: str
    instruction: str
    split: str
    hub: str
    hub_splits: Mapping[str, str] = field(hash=False)
    hub_config: str | None = None
    ability: str = "math"
    test_fraction: float = 0.0
    deduplicate: bool = False


_BOTH = {"train": "train", "test": "test"}
_TEST = {"test": "test"}
_MATH = "DigitalLearningGmbH/MATH-lighteval"
_MATH500 = "HuggingFaceH4/MATH-500"

GSM8K = Catalogued("gsm8k", "openai/gsm8k", "number", HASHES, "train", "openai/gsm8k", _BOTH, hub_config="main")
MATH = Catalogued("math", _MATH, "latex", BOX, "train", _MATH, _BOTH)
MATH500 = Catalogued("math500", _MATH500, "latex", BOX, "test", _MATH500, _TEST)
SCIKNOWEVAL = Catalogued(
    "sciknoweval",
    "sciknoweval",
    "letter",
    LETTER,
    "train",
    "hicai-zju/SciKnowEval",
    {"train": "test", "test": "test"},  # the hub has one split, which we divide ourselves
    ability="science",
    test_fraction=0.1,
)
DAPO = Catalogued(
    "dapo_math_17k",
    "math_dapo",
    "integer",
    ANSWER_LINE,
    "train",
    "BytedTsinghua-SIA/DAPO-Math-17k",
    {"train": "train"},
    deduplicate=True,
)
AIME24 = Catalogued(
    "aime24", "aime24", "integer", ANSWER_LINE, "test", "HuggingFaceH4/aime_2024", {"test": "train"}, deduplicate=True
)
AIME25 = Catalogued("aime25", "aime25", "integer", ANSWER_LINE, "test", "math-ai/aime25", _TEST, deduplicate=True)
# verl knows no "amc23"; its scorer for integer answers takes every name that begins with "aime"
AMC23 = Catalogued("amc23", "aime_amc23", "integer", ANSWER_LINE, "test", "zwhe99/amc23", _TEST, deduplicate=True)

CATALOG = {entry.name: entry for entry in (GSM8K, MATH, MATH500, SCIKNOWEVAL, DAPO, AIME24, AIME25, AMC23)}


def find(name: str) -> Catalogued:
    """Return the data set of that name.

    Raises:
        OptionError: there is none, with the nearest match.

    >>> find("aime24").data_source
    'aime24'
    """
    if name not in CATALOG:
        raise OptionError("name", "must be one of the data sets", name, nearest(name, CATALOG))
    return CATALOG[name]
