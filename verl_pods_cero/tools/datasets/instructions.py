r"""Instructions that published prompts carry around their question: known ones, and what reads like one.

A prompt that asks for its answer in one form is not to be wrapped in a second instruction that asks for another.
An instruction is recognised by its sentences, at either end of a prompt: how to work ("Let's think step by step")
and where the answer goes (`\boxed{}`, `<answer>`, `####`, a line `Answer:`).
"""

from __future__ import annotations

import re

from verl_pods_cero.tools.datasets.catalog import CATALOG

_PLACE = (
    r"(?:\$?\\\\?(?:boxed|fbox)\{[^{}\n]{0,40}\}\$?|<answer>[^<>\n]{0,40}</answer>|[\"'“`]?(?:####|answer:)[\"'”`]?)"
    r"(?: tags?| format| environment| command)?"
    r"(?:(?:,| -|;)? ?\(?(?:for example|for instance|e\.g\.|i\.e\.|such as|like),? ?"
    r"(?:\\boxed\{[^{}\n]{0,40}\}|<answer>[^<>\n]{0,60}</answer>)\)?)?"
)
_ANSWER = (
    r"(?:(?:and|then|please|always|you must|you should|remember to|make sure to|be sure to),? ){0,4}"
    r"(?:put|place|give|return|output|provide|write|present|enclose|state|report|wrap|box) (?:your|the) (?:final )?"
    r"(?:numerical |numeric |integer )?answer (?:within|in|inside|into|after|with|using|as) "
    r"(?:the |a )?" + _PLACE
)
_STEPS = (
    r"(?:please |let['’]s |let us |you should ){0,3}(?:reason|think|solve (?:this|it|the problem)|work)"
    r"(?: carefully| through it| about it)? step[ -]by[ -]step"
)
_OWN = {part.strip() for entry in CATALOG.values() for part in entry.instruction.format(question="\0").split("\0")}
_SENTENCES = (
    *(re.escape(part) for part in sorted(_OWN) if part),
    rf"{_STEPS}(?:(?:,? (?:and|then)){{0,2}},? {_ANSWER})?",
    _ANSWER,
    r"(?:please )?solve the following (?:math |mathematics )?(?:problem|question)"
    r"(?: step[ -]by[ -]step| carefully| efficiently and clearly)?",
    r"the last line of your response should be of the form .{1,60}? where .{1,30}? is the answer to the problem",
    r"show your work in <think> ?</think> tags",
    r"(?:first )?output the thinking process in <think> ?</think>(?: tags)? and (?:then output )?(?:the )?final answer "
    r"in <answer> ?</answer> tags",
    r"the assistant first thinks about the reasoning process (?:step by step |in the mind )?and then provides the "
    r"user with the answer",
)
_SENTENCE = rf"(?:{'|'.join(_SENTENCES)})[.:!]*(?=\s|$)"
_FIRST = re.compile(rf"{_SENTENCE}(?:\s*(?:question|problem)\s*:)?", re.IGNORECASE)
# A sentence starts with a capital, after a full stop or on a line of its own: one in the midst of another stays.
_LAST = re.compile(rf"(?:(?<=[.?!:;)\]}}$\"'”])|(?<=\n)|(?<=\s)(?-i:(?=[A-Z]))){_SENTENCE}\s*\Z", re.IGNORECASE)

# No known sentence is as long: what stands before it need not be searched.
_LONGEST = 600

_SUSPICIOUS = re.compile(
    r"\\(?:boxed|fbox)\b|</?(?:answer|think|reasoning)>|step[ -]by[ -]step|final answer|####|\banswer\s*:"
    r"|^[^\w\n]{0,9}(?:user|assistant|system|instructions?)\s*:",
    re.IGNORECASE | re.MULTILINE,
)


def take_off(prompt: str) -> tuple[str, str]:
    r"""Return the question of a prompt, and the instructions that stood before and after it.

    >>> take_off('What is 2 + 2? Let\'s think step by step and output the final answer after "####".')
    ('What is 2 + 2?', 'Let\'s think step by step and output the final answer after "####".')
    >>> take_off(r"Solve the following math problem: Is $2 > 1$? Return the final answer in \boxed{} tags.")
    ('Is $2 > 1$?', 'Solve the following math problem: [...] Return the final answer in \\boxed{} tags.')
    >>> take_off("Why does it help to think step by step?")
    ('Why does it help to think step by step?', '')
    """
    question = prompt.strip()
    before: list[str] = []
    after: list[str] = []
    while found := _FIRST.match(question):
        before.append(found.group())
        question = question[found.end() :].lstrip()
    while found := _LAST.search(question, max(0, len(question) - _LONGEST)):
        after.insert(0, found.group().strip())
        question = question[: found.start()].rstrip()
    return question, " [...] ".join(filter(None, (" ".join(before), " ".join(after))))


def suspicious_part(question: str) -> str:
    r"""Return what of a question reads like an instruction, with the words around it; "" where nothing does.

    >>> suspicious_part("Compute 2 + 2 and show it as \\boxed{4}.")
    'Compute 2 + 2 and show it as \\boxed{4}.'
    """
    found = _SUSPICIOUS.search(question)
    return question[max(0, found.start() - 60) : found.end() + 60].strip() if found else ""
