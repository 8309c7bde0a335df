"""What golden lines cannot hold about rules: deadlines, absent packages, a sandbox, objects of
one's own, and the figures of other packages.
"""

from __future__ import annotations

import json
import math
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from rm_gallery import ConfigError, RewardRegistry
from rm_gallery.core.engine.context import LIMIT_SHARE
from rm_gallery.core.engine.pool import WorkerPool
from rm_gallery.core.reward.rule import KillableRule
from rm_gallery.core.text import quantities
from rm_gallery.core.text.language import known_language
from rm_gallery.core.utils.errors import MissingExtra, SandboxUnavailable
from rm_gallery.gallery.rm.alignment.harmlessness import refusal
from rm_gallery.gallery.rm.instruction import INSTRUCTIONS
from tests.gallery.registry_cases import example_of, fields_of
from tests.golden.golden import HERE, lines
from tests.support.samples import issues, make_sample, scores
from tests.support.system import require_bubblewrap


@pytest.mark.long("waits for a deadline")
def test_a_pattern_that_takes_for_ever_costs_a_part_of_its_deadline_and_its_answer_the_score() -> (
    None
):
    pattern = r"(a+)+$"
    reward = RewardRegistry.create("regex_match", pattern=pattern)
    # starts the worker, which takes its time
    assert scores(reward.evaluate(make_sample("aaa"))) == [1.0]
    stuck = RewardRegistry.create("regex_match", pattern=pattern, deadline=6.0).evaluate(
        make_sample("a" * 40 + "!")
    )
    assert scores(stuck) == [0.0], "the answer led it there"
    assert scores(reward.evaluate(make_sample("aaa"))) == [1.0]


TIMED = [
    name
    for name in RewardRegistry.list()
    # those the engine kills
    if "timeout" in fields_of(name) and not issubclass(RewardRegistry.get(name), KillableRule)
]
LEFT_OVER = 60.5
"""Seconds that a worker may take beyond the limit of what it runs, before it is killed."""


@pytest.mark.parametrize("name", TIMED)
def test_a_limit_of_its_own_ends_before_the_deadline_of_the_sample(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the deadline comes first, and an answer that hangs is the caller's fault instead of its
    own.
    """
    asked: list[float] = []
    submit = WorkerPool.asubmit

    def noted(pool: WorkerPool, fn: Any, /, *args: Any, deadline: float | None = None) -> Any:
        asked.append(math.inf if deadline is None else deadline)
        return submit(pool, fn, *args, deadline=deadline)

    monkeypatch.setattr(WorkerPool, "asubmit", noted)
    fields = fields_of(name)
    chosen = {"sandbox": "subprocess", "correctness": "math"}
    settings = {field: value for field, value in chosen.items() if field in fields}
    limits = dict.fromkeys(fields & {"timeout", "total_timeout"}, 9_000.0)
    # plain numbers are compared without a worker
    maths = make_sample("\\boxed{(x+1)^2} <confidence>1</confidence>", reference="x^2+2x+1")
    sample = example_of(name).sample if fields & {"sandbox", "max_rows"} else maths
    RewardRegistry.create(name, **settings, **limits, deadline=400.0).evaluate(
        sample.model_copy(deep=True)
    )
    assert asked and max(asked) <= 2 * LIMIT_SHARE * 400.0 + LEFT_OVER, (
        "SQL has its limit once for the tables and once for the query"
    )
    asked.clear()
    RewardRegistry.create(name, **settings, **dict.fromkeys(limits, 20.0), deadline=400.0).evaluate(
        sample.model_copy(deep=True)
    )
    assert asked and max(asked) <= 2 * 20.0 + LEFT_OVER, "a limit that ends earlier stays as it is"


MEASURED = [
    ("5 km", "5 m", 0), ("5000 m", "5 km", 1), ("300 cm", "3 m", 1), ("18 minutes", "18 hours", 0), ("54 cm", "54 cm²", 0),
    ("30°", "30%", 0), ("5\\,\\text{m}", "5 kg", 0), ("€1.250,50", "1250.50 €", 1), ("1.000.000", "1000000", 1), ("15k", "15000", 1),
    ("15k", "15", 0), ("1.2M", "1200000", 1), (r"\SI{5}{\kilo\meter}", "5 m", 0), (r"\SI{36}{\kilo\meter\per\hour}", "10 m/s", 1),
    (r"\qty{9.8}{\meter\per\second\squared}", "9.8 m/s^2", 1), ("3000 rpm", "50 Hz", 1), ("12 pm", "12", 0), ("7 am", "7 pm", 0),
    ("1 h 30 min", "90 min", 1), ("6'2\"", "74 in", 1), ("5 Mb", "5 MB", 0), ("1 GiB", "1073741824 B", 1), ("0 °C", "273.15 K", 1),
    ("150 lbs", "68.04 kg", 1), ("10 percentage points", "10%", 0), ("10%", "10", 1), ("10%", "0.1", 1),
]  # fmt: skip


@pytest.mark.parametrize("blocked", [False, True])
def test_quantities_are_compared_the_same_with_and_without_pint(
    blocked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if blocked:
        monkeypatch.setitem(sys.modules, "pint", None)
        quantities.units_of.cache_clear()
    reward = RewardRegistry.create("tolerance_number_match")
    wrong = [
        row
        for row in MEASURED
        if scores(reward.evaluate(make_sample(row[0], reference=row[1]))) != [row[2]]
    ]
    assert wrong == []


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_or_unscored(number: float) -> None:
    for name, field in (
        ("tolerance_number_match", "absolute_tolerance"),
        ("number_accuracy", "tolerance"),
    ):
        with pytest.raises(ConfigError, match=f"{field}: Input should be a finite number"):
            RewardRegistry.create(name, **{field: number})
    for metadata in (
        {"budget": {"cost": 1}, "cost": number},
        {"budget": {"cost": number}, "cost": 1},
    ):
        scored = RewardRegistry.create("trajectory_cost").evaluate(
            make_sample("a", metadata=metadata)
        )
        assert [status for status, _ in issues(scored)] == ["unscored"]


def test_instructions_in_the_arrays_of_a_table_are_read() -> None:
    ids = np.array(["keywords:existence", "length_constraints:number_words"], dtype=object)
    kwargs = np.array(
        [{"keywords": np.array(["a"])}, {"num_words": np.int64(2), "relation": "at least"}],
        dtype=object,
    )
    sample = make_sample("a b", "b", metadata={"instruction_id_list": ids, "kwargs": kwargs})
    assert scores(RewardRegistry.create("ifeval").evaluate(sample)) == [1.0, 0.0]


def test_every_instruction_has_lines_that_follow_it_and_lines_that_do_not() -> None:
    verdicts = {
        (line["instruction_id"], line["found"])
        for _, line in lines(HERE / "readers/instructions.jsonl")
    }
    assert (
        verdicts == {(name, verdict) for name in INSTRUCTIONS for verdict in (True, False)}
        and len(INSTRUCTIONS) == 25
    )


def test_every_language_that_is_told_has_a_line() -> None:
    told = {code for _, line in lines(HERE / "readers/languages.jsonl") for code in line["found"]}
    assert {
        known_language(line["code"]) for _, line in lines(HERE / "readers/language_codes.jsonl")
    } - {None} <= told


def test_the_reason_of_a_leak_holds_no_data() -> None:
    scored = RewardRegistry.create("privacy_leakage").evaluate(
        make_sample("mail zhang@qq.com or 8.8.8.8")
    )
    told = scored.output[0].answer.reward.model_dump_json()
    assert '"email"' in told and "zhang" not in told


LOADED: list[str] = []


class Detoxify:
    """Rates a text by whether it curses; takes text alone, as the real one does."""

    def __init__(self, name: str, device: str) -> None:
        LOADED.append(f"{name} on {device}")

    def predict(self, text: str) -> dict[str, float]:
        assert isinstance(text, str)
        return {"toxicity": 0.75 if "damn" in text else 0.0, "insult": 0.5}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module: Any = ModuleType("detoxify")
    module.Detoxify = Detoxify
    monkeypatch.setitem(sys.modules, "detoxify", module)
    LOADED.clear()
    refusal._detoxify_model.cache_clear()
    yield
    refusal._detoxify_model.cache_clear()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "expected"), [("damn", 0.25), ("lovely", 1.0), ("你好\r\n", 1.0), ("", 1.0)]
)
def test_score_is_one_minus_toxicity(text: str, expected: float) -> None:
    assert scores(RewardRegistry.create("detoxify_reward").evaluate(make_sample(text))) == [
        expected
    ]


@pytest.mark.usefixtures("package")
def test_loaded_once() -> None:
    for _ in range(3):
        RewardRegistry.create("detoxify_reward").check()
        scored = RewardRegistry.create("detoxify_reward").evaluate(make_sample("fine"))
    assert LOADED == ["unbiased on cpu"]
    assert scored.output[0].answer.reward.extra_data["detoxify_reward"] == {
        "toxicity": 0.0,
        "insult": 0.5,
    }
    RewardRegistry.create("detoxify_reward", model_name="original", device="cuda").evaluate(
        make_sample("fine")
    )
    assert LOADED[1:] == ["original on cuda"]


class Encoder:
    """With special tokens, unless they are left out."""

    name_or_path = "toy"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [1] * len(text.split())

    def add_special_tokens(self) -> None:
        raise AssertionError("only its presence is looked at")


class Encoded(NamedTuple):
    ids: list[int]


class Plain:
    def encode(self, text: str) -> Encoded:
        return Encoded([5] * len(text.split()))


@pytest.mark.parametrize("tokenizer", ["whitespace", str.split, Encoder(), Plain()])
def test_tokens_are_counted(tokenizer: Any) -> None:
    reward = RewardRegistry.create(
        "dapo_soft_overlong_punishment", unit="tokens", tokenizer=tokenizer, max_length=10, cache=10
    )
    assert scores(reward.evaluate(make_sample("one two three"))) == [pytest.approx(-0.3)]


@pytest.mark.parametrize("tokenizer", [lambda text: [5] * 5, Plain()])
def test_repetitions_are_counted_in_its_tokens(tokenizer: Any) -> None:
    reward = RewardRegistry.create("ngram_repetition_penalty", n=2, tokenizer=tokenizer)
    assert scores(reward.evaluate(make_sample("a b c d e"))) == [pytest.approx(-0.45)]


def test_its_name_stands_in_the_description() -> None:
    reward = RewardRegistry.create(
        "dapo_soft_overlong_punishment", unit="tokens", tokenizer=Encoder()
    )
    assert (
        reward.describe()["tokenizer"]["name_or_path"] == "toy"
        and "Encoder(toy)" in reward.model_dump_json()
    )


DOUBLE = "```python\ndef double(x):\n    return 2 * x\n```"
TESTS = {"tests": ["assert double(2) == 4", "assert double('a') == 'aa'", "assert double(1) == 7"]}


@pytest.mark.system("bubblewrap")
def test_expected_values_are_not_told() -> None:
    require_bubblewrap()
    tests = {"inputs": ["0", "1", "2"], "outputs": ["secret0", "secret1", "secret2"]}
    sample = make_sample("```python\nprint('no')\n```", metadata={"inputs_outputs": tests})
    scored = RewardRegistry.create("code_execution").evaluate(sample)
    assert (
        scores(scored) == [0] and "secret" not in scored.output[0].answer.reward.model_dump_json()
    )


@pytest.mark.parametrize("name", ["code_execution", "code_unit_tests"])
def test_without_bubblewrap_it_tells_how_to_install_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sample = make_sample(DOUBLE, metadata=TESTS)
    with pytest.raises(SandboxUnavailable, match="nstall"):
        RewardRegistry.create(name).check()
    with pytest.raises(SandboxUnavailable, match="nstall"):
        RewardRegistry.create(name).evaluate_batch([sample])
    alone = RewardRegistry.create(name, sandbox="subprocess", all_or_nothing=False)
    assert scores(alone.evaluate(sample)) == [pytest.approx(2 / 3)]


PAIRS: list[list[str]] = json.loads(
    (Path(__file__).parent / "pairs.json").read_text(encoding="utf-8")
)


def score(name: str, answer: str, reference: str, **settings: Any) -> float | None:
    return scores(
        RewardRegistry.create(name, **settings).evaluate(make_sample(answer, reference=reference))
    )[0]


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_bleu_and_chrf_equal_sacrebleu(answer: str, reference: str) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    expected = sacrebleu.sentence_bleu(answer, [reference]).score / 100
    assert score("bleu", answer, reference) == pytest.approx(expected, abs=1e-12)
    for order in (0, 2):
        expected = sacrebleu.sentence_chrf(answer, [reference], word_order=order).score / 100
        assert score("chrf", answer, reference, word_order=order) == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_rouge_equals_its_package(answer: str, reference: str, variant: str) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(
        [variant], use_stemmer=False
    )
    expected = scorer.score(reference, answer)[variant]
    for measure in ("fmeasure", "precision", "recall"):
        assert score("rouge", answer, reference, variant=variant, measure=measure) == getattr(
            expected, measure
        )


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_f1_equals_the_formula_of_squads_script(answer: str, reference: str) -> None:
    def normal(text: str) -> list[str]:
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    given, wanted = normal(answer), normal(reference)
    common = sum((Counter(given) & Counter(wanted)).values())
    expected = 2 * common / (len(given) + len(wanted)) if common else 0.0
    assert score("f1_score", answer, reference, tokenizer="squad") == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize(
    ("name", "settings", "package"),
    [
        ("bleu", {}, "sacrebleu"),
        ("chrf", {}, "sacrebleu"),
        ("f1_score", {"tokenizer": "jieba"}, "jieba"),
    ],
)
def test_a_missing_package_is_named(
    name: str, settings: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"pip install {package}"):
        RewardRegistry.create(name, **settings).check()
