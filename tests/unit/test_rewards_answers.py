"""Which answer a response gives, and with which answers it is equal, for every data source."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.rewards import compute_score, math_process
from verl_pods_cero.rewards.letters import final_letter
from verl_pods_cero.rewards.mathematics import final_expression

needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed (extra: math)"
)
MATHEMATICS = ("DigitalLearningGmbH/MATH-lighteval", "math_dapo", "aime24")


@pytest.fixture(scope="module", autouse=True)
def child_processes() -> Iterator[None]:
    yield
    if math_process._verifiers is not None:
        math_process._verifiers.close()


def accuracy(data_source: str, response: str, ground_truth: str, **options: object) -> float:
    return float(compute_score(data_source, response, ground_truth, **options)["acc"])


# --- the right value of a response, for every data source

TABLE = [
    # GSM8K: the number after the last ####
    ("openai/gsm8k", "#### $18", "18", True),
    ("openai/gsm8k", "#### **18**", "18", True),
    ("openai/gsm8k", "####18", "18", True),
    ("openai/gsm8k", r"#### \boxed{18}", "18", True),
    ("openai/gsm8k", r"#### $\boxed{18}$", "18", True),
    ("openai/gsm8k", "**#### `18`**", "18", True),
    ("openai/gsm8k", "#### -$5", "-5", True),
    ("openai/gsm8k", "#### $-5", "-5", True),
    ("openai/gsm8k", "#### \u2212\u20ac5", "-5", True),
    ("openai/gsm8k", "#### -$5", "5", False),
    ("openai/gsm8k", "#### $1,800.50 in all", "1800.5", True),
    ("openai/gsm8k", r"#### 10\,000", "10000", True),
    ("openai/gsm8k", "#### 10 000", "10000", True),
    ("openai/gsm8k", "#### 1,8", "18", False),
    ("openai/gsm8k", "#### 1,8", "1", False),
    ("openai/gsm8k", "#### 1,234,56", "123456", False),
    ("openai/gsm8k", "#### 42\n" + "That is all. " * 30, "42", True),
    ("openai/gsm8k", "#### 42\n#### Remarks\nI checked it.", "42", True),
    ("openai/gsm8k", "#### 18 eggs at $2 each", "18", True),
    ("openai/gsm8k", "#### 18 or 19", "18", False),
    ("openai/gsm8k", "#### 18 or 19", "19", False),
    ("openai/gsm8k", "#### 18 OR 19", "18", False),
    ("openai/gsm8k", "#### 18, 19", "18", False),
    ("openai/gsm8k", "#### 3/4", "3", False),
    ("openai/gsm8k", "#### 2 + 3 = 5", "2", False),
    ("openai/gsm8k", "<answer>18 or 19</answer>", "19", False),
    ("openai/gsm8k", "<answer>18, 19</answer>", "19", False),
    ("openai/gsm8k", "<answer>-$5</answer>", "-5", True),
    ("openai/gsm8k", "<answer>9 * 2 = $18</answer>", "18", True),
    # multiple choice
    ("sciknoweval", "The answer is option C.", "C", True),
    ("sciknoweval", "Answer: [C]", "C", True),
    ("sciknoweval", "Answer: Option C", "C", True),
    ("sciknoweval", "<answer>Option (C)</answer>", "C", True),
    ("sciknoweval", r"The answer is $\boxed{\textbf{(C)}}$.", "C", True),
    ("sciknoweval", r"\boxed{C.}", "C", True),
    ("sciknoweval", "The final answer is: **C**", "C", True),
    ("sciknoweval", "A is right, or the answer is C", "C", False),
    ("sciknoweval", "The answer is A or the answer is C", "C", False),
    ("sciknoweval", r"\boxed{A} or \boxed{C}", "C", False),
    ("sciknoweval", "The answer is optional. C", "C", False),
    # mathematics: a point in the box, separators, units, layout
    ("math", r"\boxed{30^\circ.}", "30", True),
    ("math", r"\boxed{43_5.}", "43_5", True),
    ("math", r"\boxed{10\,000}", "10000", True),
    ("math", r"\boxed{10{,}000\text{ km}}", r"10,\!000", True),
    ("math", r"\boxed{1,8}", "18", False),
    ("math", r"\boxed{440\text{ cm}^2}", "440{cm}^2", True),
    ("math", r"\boxed{6, 8\text{, and }10}", "6,8{,}10", True),
    ("math", r"\boxed{x = 5 \text{ square inches}}", "5", True),
    ("math", r"\boxed{V = 3 \cdot 4\pi = 12\pi}", r"12\pi", True),
    ("math", r"\boxed{-\frac12}", r"\dfrac{-1}{2}", True),
    ("math", r"\boxed{12{,}345.6}", "12345.60", True),
    ("math", "Answer: east", r"\text{East}", True),
    ("math", r"\boxed{x = \text{east}}", r"\text{east}", True),
    ("math", r"\boxed{E}", r"\text{(E)}", True),
    ("math", r"\boxed{2t}", "2", False),
    ("math", r"\boxed{1, 2, 3, \ldots}", "1, 2, 3", False),
    ("math", r"\boxed{1, 2, 3, ...}", "1, 2, 3", False),
    ("math", r"\boxed{28 pct}", r"28\%", True),
    # one reading
    ("math", r"\boxed{3\text{ (or } 4)}", "3", False),
    ("math", r"\boxed{3\text{ (or } 4)}", "4", False),
    ("math", r"\boxed{3\text{ units}=4}", "3", False),
    ("math", r"\boxed{3\text{ units}=4}", "4", False),
    ("math", r"<answer>$3$ (or $4$)</answer>", "4", False),
    ("math", r"\boxed{3} or \boxed{4}", "4", False),
    ("math", r"\boxed{3} or \boxed{4}", "3,4", True),
    ("math", r"\boxed{x=3\text{ or }x=4}", "3,4", True),
    ("math", r"\boxed{3 4}", "7", False),
    ("math", r"\boxed{(1, 2)}", "1, 2", False),
    ("math", r"\boxed{1, 2}", "(1, 2)", False),
    ("math", r"\boxed{2, 1}", r"\{1, 2\}", True),
    ("math", r"\boxed{1, 2}", "a = 1, b = 2", False),
    ("math", r"\boxed{a = 2, b = 1}", "a = 1, b = 2", False),
    ("math", r"\boxed{-50}", "4x - 5y = -50", False),
    ("math", r"\boxed{5y - 4x = 50}", "4x - 5y = -50", True),
    ("math", r"\boxed{3\text{ OR }4}", "3", False),
    ("math", r"\boxed{\frac{6}{8}}", r"\frac{3}{4} \text{ OR } 0.75", True),
    ("math", r"\boxed{0.75}", r"\frac{3}{4} \text{ OR } 0.75", True),
    ("math", r"\boxed{0.8}", r"\frac{3}{4} \text{ OR } 0.75", False),
    ("math", r"\boxed{\sum_{n=1}^{100} n}", "5050", True),
    # bases
    ("math", r"\boxed{66_9}", "66_8", False),
    ("math", r"\boxed{66}", "66_9", False),
    ("math", r"\boxed{60}", "66_9", False),
    ("math", r"\boxed{66_{9}}", "66_9", True),
    ("math", r"\boxed{66 \text{ (base 9)}}", "66_9", True),
    ("math", r"\boxed{2{,}415_{7}}", "2415_7", True),
    ("math", r"\boxed{66_{10}}", "66", True),
    # exact numbers exactly, decimals to six digits
    ("math", r"\boxed{\frac{1}{2^{99}}}", r"\frac{1}{2^{98}}", False),
    ("math", r"\boxed{\frac{2}{2^{100}}}", r"\frac{1}{2^{99}}", True),
    ("math", r"\boxed{3/2^{100}}", "5/2^{100}", False),
    ("math", r"\boxed{2^{100}}", "2^{100} + 1", False),
    ("math", r"\boxed{2^{100}}", str(2**100), True),
    ("math", r"\boxed{\frac{\sqrt3}{2^{99}}}", r"\frac{\sqrt3}{2^{98}}", False),
    ("math", r"\boxed{\sqrt2 + \sqrt3}", r"\sqrt{5 + 2\sqrt6}", True),
    ("math", r"\boxed{1 + \frac{\sqrt2}{2^{300}}}", "1", False),
    ("math", r"\boxed{(2^{-99}, 1)}", "(2^{-98}, 1)", False),
    (
        "math",
        r"\boxed{\begin{pmatrix} 2^{-99} \\ 1 \end{pmatrix}}",
        r"\begin{pmatrix} 2^{-98} \\ 1 \end{pmatrix}",
        False,
    ),
    ("math", r"\boxed{\begin{pmatrix} 0.5 \\ 1 \end{pmatrix}}", r"\begin{pmatrix} \frac12 \\ 1 \end{pmatrix}", True),
    ("math", r"\boxed{x^2 + 2^{-99}}", "x^2 + 2^{-98}", False),
    ("math", r"\boxed{0.333333}", r"\frac13", True),
    ("math", r"\boxed{0.33333}", r"\frac13", False),
    ("math", r"\boxed{1.414214}", r"\sqrt2", True),
    ("math", r"\boxed{1.41421}", r"\sqrt2", False),
    ("math", r"\boxed{0.000000333333}", r"\frac{1}{3000000}", True),
    ("math", r"\boxed{0.0000004}", r"\frac{1}{3000000}", False),
    ("math", r"\boxed{27.0000001}", "27", False),
]


@needs_math_verify
@pytest.mark.parametrize(("data_source", "response", "ground_truth", "right"), TABLE)
def test_a_response_has_the_right_value(data_source: str, response: str, ground_truth: str, right: bool) -> None:
    assert accuracy(data_source, response, ground_truth) == right


# --- invariants: hedges, bases, signs, separators, powers

fractions = st.builds(Fraction, st.integers(-40, 40), st.integers(1, 12))
ALTERNATIVES = (
    r"\boxed{%s\text{ or }%s}",
    r"\boxed{%s, %s}",
    r"\boxed{%s\text{ (or } %s)}",
    r"\boxed{%s (or %s)}",
    r"\boxed{%s \quad %s}",
    r"\boxed{x = %s \text{ or } x = %s}",
    r"\boxed{%s} or \boxed{%s}",
    r"\boxed{%s\text{ units}=%s}",
    r"<answer>$%s$ or $%s$</answer>",
    r"<answer>$%s$ (or maybe $%s$)</answer>",
    "Answer: %s or %s",
    "Answer: either %s or else %s",
)
HEDGES = (
    *ALTERNATIVES,
    r"\boxed{%s = %s}",
    r"\boxed{x = %s = %s}",
    r"\boxed{%s\text{ not }%s}",
    r"\boxed{%s \approx %s}",
    r"\boxed{%s} \boxed{%s}",
    "Answer: %s\nAnswer: %s",
    "<answer>%s</answer><answer>%s</answer>",
    "<answer>$%s$, that is $%s$</answer>",
)


def written(number: Fraction) -> str:
    sign = "-" if number < 0 else ""
    if number.denominator == 1:
        return str(number)
    return rf"{sign}\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"


@needs_math_verify
@settings(max_examples=150)
@given(st.sampled_from(MATHEMATICS), st.sampled_from(HEDGES), st.lists(fractions, min_size=2, max_size=2, unique=True))
def test_a_response_with_two_answers_is_right_for_one_at_most(source: str, hedge: str, numbers: list[Fraction]) -> None:
    answers = [written(number) for number in numbers]
    right = sum(accuracy(source, hedge % tuple(answers), answer) for answer in answers)
    assert right <= (0 if hedge in ALTERNATIVES else 1)


@needs_math_verify
@settings(max_examples=150)
@given(
    st.sampled_from(MATHEMATICS),
    st.text(r"0123456789.,=+-_^/()[]{}\\ $x", max_size=12)
    | st.lists(
        st.sampled_from(["3", "4", "-", "=", "x", r"\text{ or }", r"\text{ units}", "(", ")", ",", r"\frac34"])
    ).map("".join),
    st.lists(
        st.sampled_from(["3", "4", r"\frac34", "34", "3_4", "(3,4)", "3,4", "-3", "x=4+y", "7", "12"]),
        unique=True,
        min_size=2,
        max_size=2,
    ),
)
def test_no_text_is_equal_to_two_answers_that_are_unequal(source: str, text: str, answers: list[str]) -> None:
    assert sum(accuracy(source, rf"\boxed{{{text}}}", answer) for answer in answers) <= 1


@settings(max_examples=80)
@given(
    st.sampled_from(["18", "-4", "2.5", "1000"]),
    st.sampled_from(["19", "7", "-18"]),
    st.sampled_from(
        [
            "#### %s or %s",
            "#### %s, %s",
            "#### %s and %s",
            "#### %s / %s",
            "#### **%s** or **%s**",
            "<answer>%s or %s</answer>",
            "<answer>%s and %s</answer>",
            "<answer>$%s, $%s</answer>",
        ]
    ),
)
def test_gsm8k_takes_no_number_of_several(first: str, second: str, hedge: str) -> None:
    response = hedge % (first, second)
    assert accuracy("openai/gsm8k", response, first) == accuracy("openai/gsm8k", response, second) == 0.0


@settings(max_examples=100)
@given(
    st.text("01234567", min_size=1, max_size=6),
    st.integers(8, 36),
    st.integers(8, 36),
    st.sampled_from(["%s_%d", "%s_{%d}", "%s_{%d}."]),
)
def test_a_numeral_is_right_in_its_base_alone(digits: str, base: int, other: int, form: str) -> None:
    response = rf"\boxed{{{form % (digits, base)}}}"
    assert accuracy("math", response, f"{digits}_{{{base}}}") == 1.0
    assert accuracy("math", response, f"{digits}_{{{other}}}") == (base == other)
    assert accuracy("math", response, digits) == (base == 10)


DRESSES = (
    "%s",
    "$%s",
    r"\$%s",
    "**%s**",
    "*%s*",
    "`%s`",
    r"\boxed{%s}",
    r"$\boxed{%s}$",
    "(%s)",
    "[%s]",
    "**$%s**",
    "%s.",
    "%s dollars",
    r"\text{%s}",
)


@settings(max_examples=150)
@given(
    st.integers(1, 10**9),
    st.sampled_from(["", "-", "+", "\u2212"]),
    st.booleans(),
    st.sampled_from(DRESSES),
    st.sampled_from(["", " ", "  "]),
)
def test_gsm8k_reads_a_sign_wherever_it_stands(size: int, sign: str, outside: bool, dress: str, space: str) -> None:
    answer = sign + dress % size if outside else dress % f"{sign}{size}"
    response = f"####{space}{answer}\n" + "so it is. " * 40
    number = -size if sign in ("-", "\u2212") else size
    assert accuracy("openai/gsm8k", response, str(number)) == 1.0
    assert accuracy("openai/gsm8k", response, str(-number)) == 0.0


@settings(max_examples=150)
@given(st.integers(1000, 10**12), st.sampled_from([",", "{,}", r"\,", r",\!", " ", "\u202f", "\u00a0"]))
def test_thousands_are_groups_of_three_digits(number: int, separator: str) -> None:
    grouped = f"{number:,}".replace(",", separator)
    for source, response in (("openai/gsm8k", f"#### {grouped}"), ("math", rf"\boxed{{{grouped}}}")):
        assert accuracy(source, response, str(number)) == 1.0
    ragged = f"{str(number)[:-2]},{str(number)[-2:]}"
    for source, response in (("openai/gsm8k", f"#### {ragged}"), ("math_dapo", f"Answer: {ragged}")):
        assert accuracy(source, response, str(number)) == 0.0


@needs_math_verify
@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_powers_are_equal_where_their_values_are(top: int, other: int, power: int, second: int, near: bool) -> None:
    second = power + second % 3 if near else second
    response, answer = rf"\boxed{{{top}/2^{{{power}}}}}", rf"\frac{{{other}}}{{2^{{{second}}}}}"
    assert accuracy("math", response, answer) == (Fraction(top, 2**power) == Fraction(other, 2**second))


@settings(max_examples=100)
@given(st.builds(Fraction, st.integers(1, 10**6), st.integers(2, 10**9)).filter(lambda number: number.denominator > 1))
def test_a_decimal_is_a_fraction_to_six_digits_however_small(number: Fraction) -> None:
    answer = written(number)
    near, far = (f"{float(number * factor):.25f}" for factor in (1 + Fraction(1, 10**7), 1 + Fraction(1, 10**5)))
    assert accuracy("math", rf"\boxed{{{near}}}", answer) == 1.0
    assert accuracy("math", rf"\boxed{{{far}}}", answer) == 0.0


# --- GSM8K


@pytest.mark.parametrize("response", ["#### 4", "#### 4.0", "#### 4.", "<think>5</think> #### 4"])
def test_gsm8k_reads_the_number_after_the_hashes(response: str) -> None:
    assert accuracy("openai/gsm8k", response, "4") == 1.0


@pytest.mark.parametrize("response", ["4", "#### 40", "#### 4\n#### 5", "<think>#### 4", ""])
def test_gsm8k_takes_no_other_number(response: str) -> None:
    assert accuracy("openai/gsm8k", response, "4") == 0.0


def test_gsm8k_ignores_thousands_separators_on_both_sides() -> None:
    assert accuracy("openai/gsm8k", "#### 2,125", "2125") == accuracy("openai/gsm8k", "#### 2125", "2,125") == 1.0


def test_gsm8k_needs_no_hashes_in_an_answer_block_or_when_flexible() -> None:
    assert accuracy("openai/gsm8k", "<think>x</think>\n<answer>\n$18\n</answer>", "18") == 1.0
    assert accuracy("openai/gsm8k", "so she makes 18 a day", "18") == 0.0
    assert accuracy("openai/gsm8k", "so she makes 18 a day", "18", gsm8k_method="flexible") == 1.0


@pytest.mark.parametrize("end", ["$18.00.", "18, in dollars", "$18, and that is all.", "18 eggs, sold daily."])
def test_gsm8k_takes_punctuation_after_a_number_for_what_it_is(end: str) -> None:
    assert accuracy("openai/gsm8k", f"<answer>{end}</answer>", "18") == 1.0
    assert accuracy("openai/gsm8k", f"So it is {end}", "18", gsm8k_method="flexible") == 1.0
    assert accuracy("openai/gsm8k", f"<answer>{end}</answer>", "19") == 0.0


def test_gsm8k_reads_a_decimal_before_a_full_stop_after_the_hashes() -> None:
    assert accuracy("openai/gsm8k", "#### 12.50.", "12.5") == 1.0


# --- SciKnowEval


@pytest.mark.parametrize(
    "response",
    [
        "Answer: C",
        "A looks likely, B does not.\n**Answer:** C",
        "Final answer: (C).",
        "Answer:\nC",
        "A and B are wrong.\n\nC",
        "It has no ring, so the correct answer is **C**.",
        r"Thus \boxed{C}.",
        r"Thus $\boxed{\text{C}}$",
        "<think>Answer: A</think>\n<answer>\nC\n</answer>",
        "<reasoning>A? B?</reasoning><answer>C</answer>",
        "Answer: A\nNo, I misread it.\nAnswer: C",
    ],
)
def test_the_final_letter_is_read(response: str) -> None:
    assert final_letter(response) == "C"


@pytest.mark.parametrize(
    "response",
    [
        "",
        "The compound C has four rings",
        "C is wrong, and so is the rest",
        "Answer: C or D",
        "Answer: C: 12.5",
        "Answer: c",
        "Answer: the third option, C",
        "<think>Answer: C",
        "<answer>A and C</answer>",
        "The answer is a Carbon",
    ],
)
def test_a_letter_in_passing_is_no_answer(response: str) -> None:
    assert final_letter(response) is None


def test_another_letter_is_wrong_whatever_else_the_response_says() -> None:
    result = compute_score("sciknoweval", "C is right, C, C.\nAnswer: D", "C")
    assert (result["acc"], result["pred"]) == (0.0, "D")


# --- mathematics


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{1} no: \boxed{2}", "2"),
        ("Answer: $34$.", "34"),
        ("**Answer:** 34", "34"),
        (r"\boxed{3}. I was wrong." + "\nAnswer: 4", "4"),
        (r"Answer: \boxed{4}", "4"),
        (r"\boxed{5}. Let me check our answer: 2 + 3, fine", "5"),
        ("<think>\\boxed{1}</think><answer> x + 1 </answer>", "x + 1"),
        (r"<answer>It is \boxed{7}</answer>", "7"),
        ("It is 4", None),
        (r"<think>\boxed{4}", None),
        (r"\boxed{4", None),
        (r"\boxed{1} or \boxed{2", "1"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"so $\boxed 5$", "5"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>1", None),
    ],
)
def test_the_final_expression_is_read(response: str, expression: str | None) -> None:
    assert final_expression(response) == expression


@needs_math_verify
@pytest.mark.parametrize(
    ("candidate", "ground_truth", "right"),
    [
        ("0.5", r"\frac{1}{2}", True),
        (r"\frac{2}{4}", r"\frac12", True),
        ("x + 1", "1+x", True),
        (r"(3, \pi/2)", r"\left( 3, \frac{\pi}{2} \right)", True),
        (r"\$32", "32", True),
        (r"44\%", "44", True),
        ("073", "73", True),
        ("35", "34", False),
        (r"\frac{2}{3}", r"\frac12", False),
        ("x", "x^2", False),
        (r"5\text{ or }6", "5", False),
        ("1", r"1 \text{ and } 2", False),
        (r"5\text{ cm}", "5", True),
        ("1" * 2000, r"\frac12", False),
    ],
)
def test_expressions_are_compared_by_their_value(candidate: str, ground_truth: str, right: bool) -> None:
    assert accuracy("math_dapo", rf"\boxed{{{candidate}}}", ground_truth) == right


@needs_math_verify
def test_mathematics_is_scored_in_many_threads_at_once() -> None:
    pairs = [(rf"\boxed{{\frac{{{i}}}{{8}}}}", "0.5") for i in range(1, 9)] * 4
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda pair: accuracy("math", *pair), pairs))
    assert results == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 4


@needs_math_verify
def test_an_answer_that_takes_for_ever_is_wrong_and_blocks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    verifiers = math_process.Verifiers(1)
    assert verifiers.equivalent("1", "2/2", timeout=60)
    assert not verifiers.equivalent("3", "9^{9^{9^{9}}}", timeout=0.5)
    assert "scored as wrong" in caplog.text
    assert verifiers.equivalent("1", "2/2", timeout=60)
    verifiers.close()
