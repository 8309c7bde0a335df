"""A verdict is the same through whatever channel a judge states it, and what an endpoint can do is
found out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataSample, GraderError, GraderRegistry, GraderScore, evaluate
from rm_gallery.core.model.base import resolve_llm
from rm_gallery.core.model.decisions import Question
from rm_gallery.core.reward.base import (
    BaseListWiseRubricReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
)
from rm_gallery.core.reward.channel import forget, taken_by
from rm_gallery.gallery.graders.checklist import ChecklistGrader
from tests.graders.material import PNG, make
from tests.support.command import command
from tests.support.judge_server import JudgeServer, make_oracle
from tests.support.samples import make_sample, scores
from tests.support.serving import Serving

ANSWERS = ("Paris.", "Lyon.", "It is Nice.")
ORACLE = make_oracle([("Paris.", True, 5), ("Lyon.", False, 2), ("It is Nice.", False, 3)])
CHANNELS = ("schema", "tool", "logprobs", "text", "auto", "decision")
REWARDS: dict[str, Callable[..., Any]] = {
    "pointwise": BasePointWiseRubricReward,
    "pairwise": BasePairWiseRubricReward,
    "listwise": BaseListWiseRubricReward,
}
WAYS: list[tuple[str, dict[str, Any]]] = [
    *((way, {"model": "openai:judge", "channel": way}) for way in CHANNELS),
    ("decisions", {"model": "decision:judge", "channel": "auto"}),
    ("systemone", {"model": "decision:judge", "channel": "decision", "dialect": "systemone"}),
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(oracle=ORACLE, score_range=(1, 5)) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_known(server: JudgeServer) -> None:
    forget()
    server.set(lacks=(), declines="", behaviour="perfect", candidate_pattern=None, latency=0.0)
    server.reset()


def judge(server: JudgeServer, model: str = "openai:judge", **settings: Any) -> Any:
    return resolve_llm(model, base_url=server.base_url, cache=False, max_attempts=1, **settings)


def given(server: JudgeServer, way: tuple[str, dict[str, Any]]) -> tuple[Any, str]:
    settings = dict(way[1])
    channel = settings.pop("channel")
    return judge(server, **settings), channel


@every_way
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("kind", "wanted"), [("pointwise", [5, 2, 3]), ("pairwise", [2, 0, 1]), ("listwise", [1, 0, 0])]
)
def test_every_kind_has_the_same_verdict_through_every_channel(
    kind: str,
    wanted: list[float],
    language: str,
    way: tuple[str, dict[str, Any]],
    server: JudgeServer,
) -> None:
    llm, channel = given(server, way)
    found = REWARDS[kind](llm=llm, name="judge", channel=channel, language=language).evaluate(
        make_sample(*ANSWERS)
    )
    read = scores(found)
    assert [pytest.approx(one) for one in wanted] == (
        [x / max(read) * 2 for x in read] if kind == "pairwise" else read  # type: ignore[operator, type-var]
    )


@every_way
def test_a_grader_has_it_too(way: tuple[str, dict[str, Any]], server: JudgeServer) -> None:
    llm, channel = given(server, way)
    server.set(behaviour="first")
    found = make("relevance", llm, channel=channel).evaluate(query="q", response="x")
    assert isinstance(found, GraderScore) and found.score == pytest.approx(5.0)


@pytest.mark.parametrize(("lacks", "taken"), [
    ((), "schema"),
    (("schema",), "tool"),
    (("schema", "tools"), "text"),
    (("tools", "logprobs"), "schema"),
])  # fmt: skip
def test_what_an_endpoint_lacks_is_found_out_once_and_said_once(
    lacks: tuple[str, ...], taken: str, server: JudgeServer, warned: list[str]
) -> None:
    server.set(lacks=lacks)
    llm = judge(server)
    reward = BasePointWiseRubricReward(llm=llm, name="judge")
    for _ in range(2):
        assert scores(reward.evaluate(make_sample(*ANSWERS))) == [5, 2, 3]
    refused = {"schema": 0, "tool": 1, "text": 2}[taken]
    assert taken_by(llm) == taken
    assert server.stats()["requests"] == 6 + refused
    assert len(warned) == min(1, refused)


def test_an_endpoint_without_probabilities_is_said_to_be_so(server: JudgeServer) -> None:
    server.set(lacks=("logprobs",))
    found = make("relevance", judge(server), channel="logprobs").evaluate(query="q", response="x")
    assert isinstance(found, GraderError) and "logprobs" in found.error
    server.set(lacks=(), behaviour="fixed:It is 4")
    silent = make("relevance", judge(server), channel="logprobs").evaluate(query="q", response="x")
    assert isinstance(silent, GraderError) and (silent.error_type, silent.cause) == (
        "no_logprobs",
        "judge",
    )


def test_forty_criteria_are_one_request_and_a_declined_one_costs_itself(
    server: JudgeServer,
) -> None:
    rubric = [{"criterion": f"Says fact number {n:02}.", "points": 1} for n in range(40)]
    server.set(declines="number 07", candidate_pattern=r"<response \S+>\n(?P<text>.*?)\n</response")
    grader = ChecklistGrader(model=judge(server, "decision:judge"), max_criteria=40)
    found = grader.evaluate(query="q", response="Paris.", criteria=rubric)
    assert isinstance(found, GraderScore) and found.score == 1.0, found
    said = [one["said"] for one in found.metadata["criteria"]]
    assert (said.count(True), said[7], server.stats()["requests"]) == (39, "refused", 1)
    worse = grader.evaluate(query="q", response="Lyon.", criteria=rubric)
    assert isinstance(worse, GraderScore) and worse.score == 0.0


def test_decisions_are_kept_and_those_that_were_declined_are_asked_again(
    server: JudgeServer,
) -> None:
    llm = resolve_llm("decision:judge", base_url=server.base_url)
    rubric = [{"criterion": "Names a town.", "points": 1}, {"criterion": "Is short.", "points": 1}]
    grader = ChecklistGrader(model=llm, max_criteria=2)
    for declines, requests in (("short", 1), ("short", 2), ("", 3), ("", 3)):
        server.set(declines=declines, behaviour="first")
        assert isinstance(
            grader.evaluate(query="kept", response="Paris.", criteria=rubric), GraderScore
        )
        assert server.stats()["requests"] == requests


@pytest.mark.parametrize("lacks", [("decisions",), ("systemone",)])
def test_the_dialect_of_a_decision_model_is_found_out(
    lacks: tuple[str, ...], server: JudgeServer
) -> None:
    with JudgeServer(oracle=ORACLE, score_range=(1, 5), in_process=True) as other:
        other.set(lacks=lacks)
        reward = BasePointWiseRubricReward(llm=judge(other, "decision:judge"), name="judge")
        assert scores(reward.evaluate(make_sample(*ANSWERS), max_workers=1)) == [5, 2, 3]
        assert other.stats()["requests"] == 3 + ("decisions" in lacks)


def test_no_address_and_no_earlier_server_at_it_chooses_the_dialect(server: JudgeServer) -> None:
    """Ports are given out again: a server that spoke System One was taken for the next one there,
    whose pictures were refused.
    """
    lacks: tuple[str, ...]
    with JudgeServer(
        oracle=ORACLE, score_range=(1, 5), behaviour="first", in_process=True
    ) as other:
        at = f"{other.azure_url}/openai/deployments/typesafe"
        llm = resolve_llm(
            "decision:judge",
            base_url=at,
            default_query={"api-version": "1"},
            cache=False,
            max_attempts=1,
        )
        reward = BasePointWiseRubricReward(llm=llm, name="judge")
        assert None not in scores(reward.evaluate(pictured()))
        assert other.stats()["requests"] == 3
        for lacks in (("systemone",), ("decisions",), ("systemone",), ("decisions",), ()):
            other.set(lacks=lacks)
            assert None not in scores(reward.evaluate(make_sample(*ANSWERS), max_workers=1))
        # "decisions" was lacking last: pictures are asked about in the dialect that holds them
        other.set(lacks=("decisions",))
        refused = reward.evaluate(pictured()).output[0].answer.reward.issues
        assert [(one.cause, "pictures" in one.message) for one in refused] == [("data", True)]
        other.set(lacks=())
        assert None not in scores(reward.evaluate(pictured()))


def test_pictures_reach_a_decision_model_in_the_dialect_that_takes_them(
    server: JudgeServer,
) -> None:
    server.set(behaviour="first")
    by_openai, by_systemone = (
        make("text_to_image", judge(server, "decision:judge", dialect=dialect)).evaluate(
            query="a red fox", response=PNG
        )
        for dialect in ("openai", "systemone")
    )
    assert isinstance(by_openai, GraderScore)
    assert isinstance(by_systemone, GraderError) and "pictures" in by_systemone.error
    turns = server.recent_requests(1)[0]["body"]["input"]
    shown = [part["type"] for t in turns if t["role"] == "user" for part in t["content"]]
    assert "input_image" in shown


@pytest.mark.parametrize(("settings", "channel", "problem"), [
    ({"model": "decision:judge"}, "text", "writes none"),
    ({"model": "openai:judge", "enable_thinking": True}, "logprobs", "thinks first"),
])  # fmt: skip
def test_a_channel_that_a_model_cannot_have_is_refused(
    settings: dict[str, Any], channel: Any, problem: str, server: JudgeServer
) -> None:
    reward = BasePointWiseRubricReward(llm=judge(server, **settings), name="judge", channel=channel)
    with pytest.raises(ConfigError, match=problem):
        reward.evaluate(make_sample("x"))
    with pytest.raises(ConfigError, match="answers typed questions"):
        judge(server, "decision:judge").chat("hello")
    assert server.stats()["requests"] == 0


SOME = {"schema": False, "tool": True, "logprobs": False, "text": True}


@pytest.mark.parametrize(("model", "lacks", "behaviour", "able"), [
    ("openai:judge", ("schema", "logprobs"), 'fixed:{"correct": true}', SOME),
    ("decision:judge", (), "first", {"decision": True}),
])  # fmt: skip
def test_doctor_says_what_an_endpoint_takes(
    model: str, lacks: tuple[str, ...], behaviour: str, able: dict[str, bool], server: JudgeServer
) -> None:
    server.set(lacks=lacks, behaviour=behaviour)
    lines = command("doctor", "--llm", model, "--base-url", server.base_url).out.splitlines()
    judged = [line for line in lines if " judge by " in line]
    assert {line.split(" by ")[1].split()[0]: line.startswith("ok ") for line in judged} == able


def test_a_report_says_how_the_judge_was_asked(server: JudgeServer) -> None:
    rows = [{"prompt": "q", "chosen": "Paris.", "rejected": "Lyon."}]
    for lacks, said in (((), "JSON by a schema"), (("schema",), "a tool call")):
        server.set(lacks=lacks)
        forget()
        report = evaluate(
            "base_helpfulness_pointwise", rows, "preferences", llm=judge(server), progress=False
        )
        assert report.score == 1.0 and f"the judge is asked for {said}" in report.notes


@pytest.mark.long("much work")
def test_a_served_checklist_is_a_decision_model_to_others(
    server: JudgeServer, tmp_path: Path
) -> None:
    server.set(candidate_pattern=r"<response \S+>\n(?P<text>.*?)\n</response")
    asked = [
        Question("good", "predicate", "Is it right?"),
        Question("level", "score", "How good?", ("1", "2", "3")),
    ]
    words = ("--reward", "grader:checklist", "--llm", "judge", "--base-url", server.base_url)
    with Serving(*words, cwd=tmp_path) as served:
        for dialect in ("openai", "systemone"):
            given = {"base_url": f"{served.url}/v1", "dialect": dialect, "api_key": "none"}
            model = resolve_llm("decision:grader:checklist", **given)
            for text, yes in (("Paris.", 1.0), ("Lyon.", 0.0)):
                told = [{"role": "user", "content": "Which town?"}]
                told += [{"role": "assistant", "content": text}]
                decisions = model.chat(told, questions=asked).decisions
                assert decisions is not None and set(decisions) == {"good", "level"}
                assert decisions["good"].probabilities["yes"] == yes


def test_refusals_that_come_late_are_no_failures_of_the_run(server: JudgeServer) -> None:
    server.set(lacks=("schema", "tools"), latency=0.8)
    reward = BasePointWiseRubricReward(llm=judge(server), name="judge")
    samples = [make_sample("Paris.", unique_id=str(n)) for n in range(40)]
    done = reward.evaluate_batch(samples, max_workers=40, progress=False)
    assert [scores(sample) for sample in done] == [[5.0]] * 40


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
HEARD = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def bodies(server: JudgeServer) -> list[Any]:
    return [request["body"] for request in server.recent_requests()]


def pictured(*parts: Any) -> DataSample:
    question = {"role": "user", "content": [{"type": "text", "text": "What town is it?"}, PICTURE]}
    outputs = [
        {
            "answer": {"role": "assistant", "content": [{"type": "text", "text": answer}, *parts]},
            "steps": [{"content": "A sign."}],
        }
        for answer in ANSWERS
    ]
    return DataSample.model_validate({"unique_id": "s", "input": [question], "output": outputs})


@pytest.mark.parametrize("channel", ["schema", "tool", "logprobs", "text", "decision"])
@pytest.mark.parametrize("kind", REWARDS)
def test_a_judge_is_sent_the_images_that_the_marks_in_its_prompt_name(
    kind: str, channel: str, server: JudgeServer
) -> None:
    model = "decision:judge" if channel == "decision" else "openai:judge"
    reward = REWARDS[kind](
        llm=judge(server, model), name="judge", channel="auto" if channel == "decision" else channel
    )
    server.set(behaviour="first")
    found = scores(reward.evaluate(pictured({"type": "image", "url": "https://example.org/b.png"})))
    assert None not in found
    for request in bodies(server):
        content = (request.get("messages") or request["input"])[-1]["content"]
        whole = "".join(part.get("text", "") for part in content)
        urls = [part["image_url"] for part in content if "image_url" in part]
        assert [mark["text"] for mark in content[1::2]] == [
            f"[image {n}]" for n in range(1, len(urls) + 1)
        ]
        assert len(urls) == 1 + {"pointwise": 1, "pairwise": 2, "listwise": 3}[kind]
        assert "[image 2]" in whole.split("[image 1]", 1)[1]
        assert str(urls[0]).count("base64") == 1
        assert str(urls[1:]).count("example.org/b.png") == len(urls) - 1


@pytest.mark.parametrize("reward", [BasePointWiseRubricReward, "grader"])
def test_what_a_judge_cannot_be_shown_is_no_score_and_nobodys_fault_but_the_rules(
    reward: Any, server: JudgeServer
) -> None:
    made = (
        GraderRegistry.create("relevance", llm=judge(server))
        if reward == "grader"
        else reward(llm=judge(server), name="judge")
    )
    server.set(lacks=("images",))
    for sample in (pictured(), pictured(HEARD)):
        issues = [
            issue
            for output in made.evaluate(sample).output
            for issue in output.answer.reward.issues
        ]
        assert {(one.status, one.cause, one.reason) for one in issues} == {
            ("unscored", "rule", "unseen_part")
        }
    if reward != "grader":
        blind = reward(llm=judge(server), name="judge", images="leave_out")
        server.set(behaviour="first")
        assert None not in scores(blind.evaluate(pictured(HEARD)))
        assert "[image 1]" in str(bodies(server)[-1]["messages"])
        assert "[input_audio]" in str(bodies(server)[-1]["messages"])


def test_a_grader_of_images_sees_those_of_an_answer(server: JudgeServer) -> None:
    server.set(behaviour="first")
    found = GraderRegistry.create("image_helpfulness", llm=judge(server)).evaluate(
        pictured(PICTURE)
    )
    assert all(scores(found)) and all("base64" in str(request) for request in bodies(server))
