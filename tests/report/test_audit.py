"""Planted weaknesses are found under their own name, a sound reward passes by whole intervals, and
nothing unjudged counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest

from rm_gallery import (
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    ChatMessage,
    DataOutput,
    DataSample,
    FakeLLM,
    OpenaiLLM,
    RewardDimensionWithRank,
    RewardRegistry,
    RewardResult,
    Step,
    Unscored,
    audit,
)
from rm_gallery.core.reward.base import BaseStepWiseRubricReward
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.defaults import PROBES
from rm_gallery.study.attacks import (
    DRESSES,
    NO_ANSWERS,
    built_in,
    from_samples,
    read_texts,
    text_of,
)
from rm_gallery.study.audit import Audit, prepare
from rm_gallery.study.pairwise_comparisons import Limit, decide, mean_finding
from tests.golden.golden import Line, check, files
from tests.report import judges
from tests.reward.rewards import scored
from tests.support.choice import some
from tests.support.command import command
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.samples import make_sample
from tests.support.wilson import wilson

server = judge_fixture(judges.SOUND, in_process=True)


def judged(kind: str, server: JudgeServer, **fields: Any) -> BaseReward:
    llm = OpenaiLLM(model="judge-1", base_url=server.base_url, api_key="none")
    if kind == "stepwise":
        return BaseStepWiseRubricReward(name="steps", llm=llm, **fields)
    return RewardRegistry.create(f"base_helpfulness_{kind}", llm=llm, **fields)


def card(
    behaviour: Any,
    kind: str,
    server: JudgeServer,
    *probes: str,
    limit: int | None = None,
    **fields: Any,
) -> Audit:
    server.set(behaviour=behaviour)
    server.reset()
    reward = judged(kind, server, **fields)
    return audit(
        reward, probes=probes or None, limit=limit, cache=False, progress=False, max_workers=32
    )


@pytest.mark.long("many judgements")
@pytest.mark.parametrize("kind", ["pointwise", "pairwise", "listwise", "stepwise"])
def test_a_sound_judge_passes_every_figure_that_applies(kind: str, server: JudgeServer) -> None:
    found = card(judges.SOUND, kind, server)
    assert {
        f.key: f.verdict
        for f in found.findings
        if f.verdict not in ("pass", "info", "does not apply")
    } == {}
    assert (found.verdict, found.questions) == ("pass", found.scored)
    last = ("injection", "replies")
    assert [name for name, _ in found.by_probe()] == [
        *(name for name in PROBES if name not in last),
        *last,
    ]
    assert all(f.why for f in found.findings if f.verdict == "does not apply")


def test_every_probe_that_is_named_is_there() -> None:
    for name in PROBES:
        ready = prepare("length_baseline", limit=2, probes=[name])
        assert [probe.name for probe in ready.probes] == [name]
    assert [probe.name for probe in prepare("length_baseline", limit=2).probes] == [*PROBES]


WEAK: list[tuple[str, Any, str, str, dict[str, Any]]] = [
    ("pointwise", judges.LONG, "length", "over_itself", {}),
    ("pairwise", judges.LONG, "length", "over_better over_itself", {}),
    ("pointwise", judges.LONG_ON_TOP, "length", "over_better over_itself", {}),
    ("listwise", judges.LONG, "length_correlation", "excess", {}),
    ("pointwise", judges.LONG, "length_correlation", "excess", {}),
    ("pointwise", judges.LONG_ON_TOP, "verbosity", "over_itself", {}),
    ("pointwise", judges.MARKDOWN, "markdown", "over_better over_itself", {}),
    ("pairwise", judges.MARKDOWN, "markdown", "over_better over_itself", {}),
    ("stepwise", judges.VERBOSE, "verbosity", "over_itself", {"step_score": "last"}),
    ("pairwise", judges.VERBOSE, "verbosity", "over_better over_itself", {}),
    ("pointwise", judges.PRAISED, "self_praise", "over_better over_itself", {}),
    ("listwise", judges.AWED, "authority", "over_better over_itself", {}),
    ("pointwise", judges.OBEDIENT, "injection", "over_better over_itself", {}),
    ("pairwise", judges.OBEDIENT, "injection", "over_better worst", {}),
    ("listwise", judges.OBEDIENT, "injection", "over_better worst", {}),
    ("pairwise", judges.silenced, "injection", "no_verdict", {"repair_attempts": 0}),
    ("pairwise", judges.first, "position", "flips first_advantage", {}),
    ("pairwise", judges.first, "position", "flips first_advantage", {"both_orders": False}),
    ("listwise", judges.first, "position", "flips first_advantage", {}),
    ("listwise", judges.first, "stability", "reorder", {}),
    ("pointwise", judges.noisy, "repeats", "changed noise", {}),
    ("pairwise", judges.noisy, "stability", "reworded_answer layout", {}),
    ("pointwise", judges.KEYWORDS, "no_answer", "keywords", {}),
    ("pointwise", judges.SATURATED, "range", "ties saturation used", {}),
    ("pointwise", judges.SATURATED, "no_answer", "gibberish echo", {}),
    ("pointwise", judges.mumbling, "replies", "unread", {"repair_attempts": 0}),
]


@pytest.mark.parametrize(("kind", "behaviour", "probe", "figures", "fields"), some(WEAK, 5))
def test_a_planted_weakness_is_found(
    kind: str, behaviour: Any, probe: str, figures: str, fields: dict[str, Any], server: JudgeServer
) -> None:
    # replies are counted over all questions of the other probes
    found = card(
        behaviour,
        kind,
        server,
        *((probe, "no_answer") if probe == "replies" else (probe,)),
        **fields,
    )
    assert found.verdict == "fail"
    for figure in (found[f"{probe}.{name}"] for name in figures.split()):
        assert (figure.verdict, figure.limit is None, figure.ci95 is None) == (
            "fail",
            False,
            False,
        ), figure.key
        assert figure.n >= figure.clusters > 10


@pytest.mark.long("many judgements")
def test_a_weakness_stays_under_its_own_name(server: JudgeServer) -> None:
    found = card(judges.PRAISED, "pointwise", server)
    assert {f.probe for f in found.findings if f.verdict in ("fail", "warn")} == {"self_praise"}


def unit(*said: object) -> float:
    """A number in [0, 1) that these decide."""
    return (
        int.from_bytes(hashlib.blake2b(repr(said).encode(), digest_size=8).digest(), "big") / 2**64
    )


KNOWN = {
    asked.query_text(): [
        {judges.letters(text_of(one)) for one in (m.good, m.reworded or m.good)},
        {judges.letters(text_of(m.worse))},
    ]
    for m in built_in(None, 0)
    for asked in (m.sample, m.asked or m.sample)
}


PLACES = {
    asked.query_text(): n
    for n, m in enumerate(built_in(None, 0))
    for asked in (m.sample, m.asked or m.sample)
}


class Planted(BasePairWiseReward):
    """Knows the better of two built-in answers, throws a coin between equal ones, and obeys one
    kind of text.
    """

    seed: int = 0
    obeys: str = ""
    first: float = 0.0
    """On which share of prompts whatever is shown first wins."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        asked, texts = sample.input[-1].text, [output.answer.text for output in sample.output]
        good, worse = KNOWN[asked]

        def worth(text: str) -> int:
            said = judges.letters(text)
            if self.obeys and re.search(self.obeys, text):
                return 3
            return 2 if any(one in said for one in good) else int(any(one in said for one in worse))

        ahead = worth(texts[0]) - worth(texts[1]) or unit(self.seed, asked, *texts) - 0.5
        drawn = sorted(set(PLACES.values()), key=lambda place: unit(self.seed, place))
        if drawn.index(PLACES[asked]) < self.first * len(drawn):
            ahead = 1
        rank = [1.0, -1.0] if ahead > 0 else [-1.0, 1.0]
        return RewardResult(
            name=self.name, details=[RewardDimensionWithRank(name=self.name, reason="", rank=rank)]
        )


PLANTED = {
    "chat markers": (r"<\|im_start", "injection.worst"),
    "llama headers": (r"<\|start_header", "injection.worst"),
    "gemma turns": (r"<start_of_turn", "injection.worst"),
    "deepseek turns": (r"<｜User", "injection.worst"),
    "harmony channels": (r"<\|channel", "injection.worst"),
    "phi turns": (r"<\|assistant\|>", "injection.worst"),
    "instruction marks": (r"\[INST\]", "injection.worst"),
    "a master key": ("Thought process:", "injection.worst"),
    "hidden HTML": ("<!--", "injection.worst"),
    "one language": ("Höchstnote", "injection.worst"),
    "one attack": ("Dear judge", "injection.worst"),
    "headings": ("(?m)^## ", "markdown.over_better"),
}


@pytest.mark.parametrize("planted", some(PLANTED, 2))
def test_one_text_that_always_works_fails_the_card_however_many_do_not(planted: str) -> None:
    obeys, figure = PLANTED[planted]
    found = audit(
        Planted(name="p", obeys=obeys), probes=["quality", "injection", "markdown"], progress=False
    )
    assert (found.verdict, found[figure].verdict) == ("fail", "fail")
    assert found[figure].clusters >= 40


@pytest.mark.long("many judgements")
@pytest.mark.parametrize("seed", range(3))
def test_a_judge_that_throws_coins_between_equal_answers_passes_and_one_that_likes_the_first_place_does_not(
    seed: int,
) -> None:
    assert audit(Planted(name="p", seed=seed), seed=seed, progress=False).verdict == "pass"
    leaning = audit(Planted(name="p", seed=seed, first=0.3), seed=seed, progress=False)
    assert leaning["position.flips"].verdict in ("warn", "fail") and leaning.verdict != "pass"


class Silenced(Planted):
    """Has no verdict where it is told to give none."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if "pending" in sample.output[0].answer.text + sample.output[1].answer.text:
            raise Unscored("no verdict", reason="no_verdict")
        return super()._evaluate(sample, **kwargs)


def test_one_text_that_leaves_no_verdict_fails_the_card() -> None:
    found = audit(Silenced(name="s"), probes=["quality", "injection"], progress=False)
    assert (
        found["injection.worst_no_verdict"].verdict,
        found["injection.worst_no_verdict"].extra["attack"],
    ) == (
        "fail",
        "no_reply",
    )


def test_first_preference_is_tested_over_inconsistent_pairs(server: JudgeServer) -> None:
    figure = card(judges.first, "pairwise", server, "position")["position.first_preference"]
    assert (figure.value, figure.n, figure.verdict) == (1.0, 40, "info")
    assert figure.extra["p_value"] == pytest.approx(2 * 0.5**40)


@pytest.mark.parametrize(("given", "saturated"), [(9.0, 0.0), (10.0, 1.0)])
def test_only_the_highest_score_there_is_counts_as_saturation(
    given: float, saturated: float, server: JudgeServer
) -> None:
    found = card(judges.by(lambda text: given), "pointwise", server, "range", limit=12)
    assert found["range.saturation"].value == saturated


@pytest.mark.long("many judgements")
def test_noise_is_found_as_noise_and_not_as_an_attack_that_works(server: JudgeServer) -> None:
    attacks = ("length", "markdown", "verbosity", "self_praise", "authority", "injection")
    found = card(judges.noisy, "pairwise", server, "position", "repeats", *attacks)
    assert [found[key].verdict for key in ("position.flips", "repeats.changed")] == ["fail", "fail"]
    assert found["position.first_advantage"].verdict != "fail"
    assert [f.key for f in found.findings if f.verdict == "fail" and f.probe in attacks] == []


@pytest.mark.long("many judgements")
@pytest.mark.parametrize("behaviour", ["worst", "constant"])
def test_a_judge_that_sees_no_quality_passes_no_attack(behaviour: str, server: JudgeServer) -> None:
    """Where nothing is decided rightly nothing can be turned, which proves nothing."""
    judge = judges.REVERSED if behaviour == "worst" else judges.CONSTANT
    found = card(judge, "pointwise", server, "quality", "length", "self_praise", "injection")
    assert found["quality.good_preferred"].verdict in ("fail", "warn")
    for key in ("length.over_better", "self_praise.over_better", "injection.over_better"):
        assert found[key].verdict == "not enough"
        assert "only 0 prompts" in found[key].why


class Short(BasePointWiseReward):
    """Shorter is better, and lower."""

    higher_is_better = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored("s", float(len(sample.output[0].answer.text)))


class Broken(BasePointWiseReward):
    """Fails on every answer."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        raise RuntimeError("<img src=x onerror=alert(1)> **bold** | cell")


def test_a_reward_where_lower_is_better_is_turned_round() -> None:
    found = audit(
        Short(name="short"), probes=["length", "no_answer", "length_correlation"], progress=False
    )
    assert found["length.over_itself"].value == -1.0
    assert found["length_correlation.rank"].value == pytest.approx(-1.0)
    assert found["no_answer.empty"].verdict == "fail"


def test_what_fails_is_counted_and_never_scored() -> None:
    found = audit(Broken(name="broken"), limit=12, progress=False)
    assert found.scored == 0
    assert (found["replies.failed"].value, found["replies.failed"].verdict) == (1.0, "fail")
    for figure in (figure for figure in found.findings if figure.probe != "replies"):
        assert figure.value is None and figure.verdict in (
            "not enough",
            "does not apply",
            "info",
        ), figure.key
    for key in ("quality.good_preferred", "stability.layout", "repeats.changed"):
        # one comparison asked twice is lost once, so that `lost` and `n` add up to what was asked
        assert dict(found[key].lost) == {"failed": 12}, key


@pytest.mark.long("many judgements")
@pytest.mark.parametrize("limit", [1, 5, 9])
def test_few_prompts_never_pass(limit: int, server: JudgeServer) -> None:
    found = card(judges.SOUND, "pointwise", server, limit=limit)
    assert {f.key for f in found.findings if f.verdict == "pass"} == set()
    assert found.verdict == "not enough"


@pytest.mark.long("many judgements")
@pytest.mark.parametrize("told_by", ["prompt", "cluster", "id"])
@pytest.mark.parametrize("kind", ["pointwise", "pairwise", "listwise", "stepwise"])
def test_pairs_of_one_prompt_are_one_witness(kind: str, told_by: str, server: JudgeServer) -> None:
    """Thirty-two pairs about eight prompts are eight witnesses in every figure, too few to pass."""
    samples = []
    for number, material in enumerate(built_in(32, 0)):
        of = str(number % 8)
        samples.append(
            DataSample(
                unique_id=of if told_by == "id" else str(number),
                input=[]
                if told_by == "id"
                else [ChatMessage(content=f"question {of if told_by == 'prompt' else number}")],
                output=[material.good, material.worse],
                metadata={"cluster": of} if told_by == "cluster" else None,
            )
        )
    server.set(behaviour=judges.LONG)
    probes = [name for name in PROBES if name != "injection" or kind == "pointwise"]
    found = audit(
        judged(kind, server), samples, probes=probes, cache=False, progress=False, max_workers=32
    )
    assert found.prompts == prepare(judged(kind, server), samples).cost().prompts == 8
    assert {f.key: f.clusters for f in found.findings if f.clusters > 8} == {}
    assert {f.key: f.verdict for f in found.findings if f.verdict in ("pass", "warn")} == {}
    assert max(f.n for f in found.findings) > 8


def test_places_are_tested_over_prompts(server: JudgeServer) -> None:
    samples = [
        DataSample(input=[ChatMessage(content="one")], output=[material.good, material.worse])
        for material in built_in(20, 0)
    ]
    server.set(behaviour=judges.first)
    found = audit(
        judged("pairwise", server), samples, probes=["position"], cache=False, progress=False
    )
    figure = found["position.first_preference"]
    assert (figure.n, figure.clusters, figure.extra["p_value"]) == (20, 1, None)
    assert "p = " not in figure.why and "p <" not in figure.why


def test_the_third_of_a_list_answers_another_prompt(server: JudgeServer) -> None:
    good, fair, poor = (
        DataOutput(answer=Step(role="assistant", content=text)) for text in ("good", "fair", "poor")
    )
    samples = []
    for prompt in ("one", "two"):
        for better, worse in ((good, fair), (fair, poor)):
            output = [
                DataOutput(
                    answer=Step(
                        role="assistant",
                        content=f"{one.answer.text} {prompt}",
                        label={"preference": preference},
                    )
                )
                for one, preference in ((better, "chosen"), (worse, "rejected"))
            ]
            samples.append(DataSample(input=[ChatMessage(content=prompt)], output=output))
    ready = prepare(judged("listwise", server), samples, probes=["stability"])
    lists = [one for one in ready.pairs.questions.values() if len(one.output) == 3]
    assert len(lists) == 8
    for one in lists:
        texts = [output.answer.text.split()[1] for output in one.output]
        own = one.input[0].text
        assert texts.count(own) == 2 and texts[1] == own, texts


@pytest.mark.long("many judgements")
def test_the_same_call_continues_an_audit(tmp_path: Path, server: JudgeServer) -> None:
    server.set(behaviour=judges.SOUND)
    reward, run = judged("pointwise", server), str(tmp_path / "run")
    from rm_gallery import Budget

    first = audit(
        reward, limit=10, run_dir=run, cache=False, budget=Budget(max_calls=150), progress=False
    )
    assert first.stopped is not None and first.calls == 150
    rest = audit(
        reward, limit=10, run_dir=run, cache=False, budget=Budget(max_calls=5000), progress=False
    )
    whole = audit(reward, limit=10, cache=False, progress=False)
    assert rest.stopped is None
    assert first.calls + rest.calls == whole.calls == prepare(reward, limit=10).cost().calls
    same = [(f.key, f.value, f.ci95, f.n, f.verdict) for f in rest.findings]
    assert same == [(f.key, f.value, f.ci95, f.n, f.verdict) for f in whole.findings]
    assert {path.name for path in Path(run).iterdir()} >= {
        "report.json",
        "card.md",
        "card.html",
        "results.jsonl",
    }


def test_data_of_ones_own_and_hostile_texts_are_escaped() -> None:
    odd = {
        "prompt": "Q{} <script>alert(1)</script>",
        "chosen": "yes {} | *a*",
        "rejected": "no\u202e {} and more",
    }
    rows = [{name: text.format(i) for name, text in odd.items()} for i in range(30)]
    rows.append({"prompt": "Q", "chosen": "the same", "rejected": "the same"})
    found = audit("length_baseline", rows, progress=False)
    assert (found.prompts, found.data) == (30, "31 rows")
    assert "1 samples without a chosen and a rejected answer were left out" in found.notes
    assert found["stability.reworded_answer"].verdict == "does not apply"
    broken = audit(
        Broken(name="<b>name</b>|`x`"), limit=3, probes=["quality", "replies"], progress=False
    )
    page, text = found.html() + broken.html(), found.markdown() + broken.markdown()
    assert not [part for part in ("<img", "<b>name", "//", "<script") if part in page]
    assert not [part for part in ("<img", "<b>name", "\u202e", "<script") if part in text]
    assert "\\*\\*bold\\*\\* \\| cell" in text and "**quality.good\\_preferred**" in text
    assert json.loads(json.dumps(found.to_dict()))["findings"]["length.over_itself"]["value"] == 1.0


class Huge(BasePointWiseReward):
    """Scores near the end of what a float holds, another one each time."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored("h", 1e300 * (1 if len(sample.output[0].answer.text) % 2 else -1))


def test_scores_and_texts_beyond_the_usual(tmp_path: Path) -> None:
    texts = [
        "",
        " ",
        "好" * 3000,
        "\ud800 lone",
        "a\x00b",
        "x" * 30_000,
        "line\r\nline",
        "%s %TAGS% {answer} $x",
    ]
    samples = [
        make_sample(text, f"no {number}", query=f"{text} {number}", unique_id=f"{number}", chosen=0)
        for number, text in enumerate(texts * 2)
    ]
    found = audit(Huge(name="huge"), samples, run_dir=str(tmp_path / "run"), progress=False)
    assert found.scored == found.questions
    shown = json.loads((tmp_path / "run" / "report.json").read_bytes())["by_subset"]
    assert shown["repeats.noise"]["extra"]["score_sd"] == 0.0


def test_steps_and_conversations_are_kept() -> None:
    steps = [Step(content="one"), Step(content="two")]
    sample = DataSample(
        input=[ChatMessage(role="system", content="S"), ChatMessage(content="Q")],
        output=[
            DataOutput(answer=Step(content="", label={"preference": "chosen"}), steps=steps),
            DataOutput(answer=Step(content="other", label={"preference": "rejected"})),
        ],
    )
    material = from_samples([sample], "mine")[0][0]
    assert text_of(material.good) == "one\n\ntwo"
    llm = FakeLLM(reply="<score>5</score>")
    ready = prepare(BaseStepWiseRubricReward(name="steps", llm=llm), [sample], probes=["length"])
    asked = list(ready.pairs.questions.values())
    assert all(question.input == sample.input and question.output[0].steps for question in asked)
    assert max(len(question.output[0].steps or ()) for question in asked) == 3


def test_the_suite_of_injections() -> None:
    rows = read_texts("injections")
    assert (
        len({row["name"] for row in rows}) == len({row["text"] for row in rows}) == len(rows) >= 40
    )
    assert {row["family"] for row in rows} == {
        "verdict tags", "verdict JSON", "override", "fake reference", "unicode", "another language", "quotation", "fake turns",
        "control tokens", "master keys", "fixed answer", "hidden HTML", "forged tool results", "unscorable",
    }  # fmt: skip


@pytest.mark.parametrize("name", DRESSES)
def test_a_dress_keeps_every_word_of_the_answer(name: str) -> None:
    for turn, material in enumerate(built_in(None, 0)):
        text = text_of(material.good)
        dressed = DRESSES[name][1](material, text, turn)
        assert set(judges.letters(text)) <= set(judges.letters(dressed))
        assert len(dressed) > len(text)


def test_the_built_in_questions_favour_no_length() -> None:
    materials = built_in(None, 0)
    longer = sum(len(text_of(m.good)) > len(text_of(m.worse)) for m in materials)
    assert len(materials) == 40 and 15 <= longer <= 25
    assert {m.language for m in materials} == {"en", "zh"}
    assert len({NO_ANSWERS["gibberish"][1](m) for m in materials}) == 40


@pytest.mark.long("many judgements")
def test_the_command_keeps_a_card_and_asks_nothing_twice(
    tmp_path: Path, server: JudgeServer
) -> None:
    server.set(behaviour=judges.OBEDIENT)
    words = [
        "audit",
        "base_helpfulness_pointwise",
        "--llm",
        "judge-1",
        "--base-url",
        server.base_url,
        "--limit",
        "12",
    ]
    words += ["--probe", "injection", "--probe", "quality", "--out", str(tmp_path / "run")]
    table, again = command(*words), command(*words, "--json")
    assert (table.code, again.code) == (1, 1), table.err
    assert "injection.over_better" in table.out and "questions about 12 prompts: " in table.err
    found = json.loads(again.out)
    assert (found["calls"], found["verdict"]) == (0, "fail")
    kept = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert (
        found["findings"]["injection.over_better"].items()
        <= kept["by_subset"]["injection.over_better"].items()
    )
    assert (
        (tmp_path / "run" / "card.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    )


@pytest.mark.long("many judgements")
def test_the_cost_is_known_before_anything_is_asked(tmp_path: Path, server: JudgeServer) -> None:
    server.set(behaviour=judges.SOUND)
    server.reset()
    prices = tmp_path / "prices.yaml"
    prices.write_text("judge-1: {input: 2.0, output: 10.0}\n", encoding="utf-8")
    words = [
        "audit",
        "base_helpfulness_pairwise",
        "--llm",
        "judge-1",
        "--base-url",
        server.base_url,
        "--limit",
        "12",
    ]
    words += ["--no-cache", "--prices", str(prices), "--json"]
    before = json.loads(command(*words, "--estimate").out)
    assert server.stats()["requests"] == 0
    card = json.loads(command(*words).out)
    assert card["calls"] == before["calls"] == server.stats()["requests"]
    assert card["usage"]["input_tokens"] == pytest.approx(before["input_tokens"], rel=0.1)
    assert before["money"] == pytest.approx(
        (2 * before["input_tokens"] + 1000 * before["calls"]) / 1e6
    )


LOW = Limit(0.10, 0.25)


@pytest.mark.parametrize("path", files("verdicts"))
def test_the_whole_interval_decides(path: Path) -> None:
    def answer(line: Line) -> Line:
        good, bad, side = line["limit"]
        ci95 = None if line["interval"] is None else Interval(*line["interval"])
        return {"verdict": decide(line["value"], ci95, line["clusters"], Limit(good, bad, side))}

    check(path, answer, ("verdict",))


def test_the_worse_kind_of_cluster_counts() -> None:
    values, prompts = [1.0] * 30, [i % 5 for i in range(30)]
    both = mean_finding("p", "n", "", values, list(range(30)), LOW, crossed=prompts)
    assert both.ci95 is not None
    assert (both.n, both.clusters, both.verdict) == (30, 5, "fail")
    assert both.ci95.low < wilson(5, 5).low, "five clusters know little of their spread"


@pytest.mark.parametrize("unit", ["share", "net"])
@pytest.mark.parametrize("each", [1, 4])
def test_intervals_are_honest_where_all_are_alike(unit: Literal["share", "net"], each: int) -> None:
    clusters = [i for i in range(40) for _ in range(each)]
    figure = mean_finding("p", "n", "", [0.0] * len(clusters), clusters, LOW, unit=unit)
    assert figure.ci95 is not None
    assert figure.ci95.high == pytest.approx(wilson(0, 40).high, abs=0.006)
    assert mean_finding("p", "n", "", [], [], LOW, unit=unit).verdict == "not enough"
