"""What judges are asked, word for word: a text file for every judged reward and grader, and for
what they share.

Texts are taken from the requests that reach the model. `make golden` writes them anew; a changed
word is a changed line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rm_gallery import DataSample, LLMGrader, RewardRegistry, Step
from rm_gallery.core.graders.results import about_of
from rm_gallery.core.reward import base
from rm_gallery.core.reward.judge import WORKED, BaseRubricReward
from rm_gallery.core.reward.principle.auto import AutoPrincipleGenerator
from rm_gallery.core.reward.template import ComparativeTemplate
from rm_gallery.gallery.rm import judged_name, scenario_keys
from tests.golden.golden import HERE, WRITING
from tests.graders.material import fields_for, judged_graders, make
from tests.reward.rewards import Listening
from tests.support.samples import make_sample

FOLDER = HERE / "prompts"
LANGUAGES = ("en", "zh")
KINDS: dict[str, type[base.BaseRubricReward]] = {
    "pointwise": base.BasePointWiseRubricReward,
    "listwise": base.BaseListWiseRubricReward,
    "pairwise": base.BasePairWiseRubricReward,
    "stepwise": base.BaseStepWiseRubricReward,
    "trajectory": base.BaseTrajectoryRubricReward,
}
TASK = {"scenario": "[[scenario]]", "desc": "[[desc]]", "rubrics": ["[[first]]", "[[second]]"]}
FULL = {**TASK, "examples": ["[[one more]]", "[[another]]"], "show_reference": True}
OF_TASK = re.compile(r"# (?:Scenario|Task|Rubrics|场景|任务|评分准则)\n")
OF_SCALE = re.compile(r"# (?:Scale|量表)\n")
Texts = dict[str, str]


def sample() -> DataSample:
    tools = [{"name": "[[tool]]"}]
    made = make_sample(
        "[[one]]",
        "[[two]]",
        query="[[query]]",
        reference="[[reference]]",
        metadata={"tools": tools},
    )
    made.input[0].additional_kwargs["context"] = "[[context]]"
    for output in made.output:
        output.steps = [Step(content="[[step]]"), Step(content=f"[[after]] {output.answer.text}")]
        output.answer.label = {**(output.answer.label or {}), "workspace": {"a.txt": "[[file]]"}}
    return made


def said(messages: list[dict[str, Any]]) -> str:
    """The messages as one text, the marker of this prompt replaced by a word."""
    shown = [(m["role"], m["content"]) for m in messages]
    text = "\n\n".join(
        f"[{role}]\n{c if isinstance(c, str) else json.dumps(c, indent=1)}" for role, c in shown
    )
    marker = re.search(r"<\w+ ([0-9a-f]{8})>", text)
    return text.replace(marker[1], "MARKER") if marker else text


def request(
    build: Callable[[Listening], Any], which: int = 0, reply: str = "no verdict", row: Any = None
) -> str:
    """One of the requests for the sample, or for a grader's row."""
    judge = Listening(reply=reply)
    made = build(judge)
    if row is None:
        made.evaluate(sample(), max_workers=1)
    else:
        made.evaluate(row)
    return said(judge.asked[which]["messages"])


def of_kind(kind: str, language: str, **settings: Any) -> str:
    given: Any = {"name": "judge", "language": language, "channel": "text", **settings}
    return request(lambda judge: KINDS[kind](llm=judge, **given), 2 if kind == "stepwise" else 0)


def of_reward(name: str, language: str) -> str:
    return request(
        lambda judge: RewardRegistry.create(name, llm=judge, language=language, **_by_text(name))
    )


def _by_text(name: str) -> dict[str, Any]:
    """The setting that asks for words, of judges that have the choice."""
    fields = RewardRegistry.get(name).model_fields
    return {"channel": "text"} if "channel" in fields else {}


def frame(kind: str) -> Texts:
    texts = {language: of_kind(kind, language, **FULL) for language in LANGUAGES}
    texts |= {f"{language}, nothing given": of_kind(kind, language) for language in LANGUAGES}
    return texts


def worked(kind: str) -> Texts:
    """What a judge is asked that has to compute: its own working first."""
    return {
        language: of_kind(kind, language, template=WORKED[kind]).partition("[user]")[0]
        for language in LANGUAGES
    }


def thinking() -> Texts:
    judge = Listening(reply="<best>1</best>", enable_thinking=True)
    RewardRegistry.create("ruler", llm=judge).evaluate(sample())
    KINDS["pointwise"](llm=judge, name="judge", channel="text").evaluate(make_sample("[[one]]"))
    LLMGrader(model=judge, prompt="Grade {response}.", channel="schema").evaluate(
        response="[[response]]"
    )
    firsts = [asked for asked in judge.asked if len(asked["messages"]) < 3]
    return {
        "ruler": said(firsts[0]["messages"]),
        "pointwise": said(firsts[1]["messages"]),
        "json": said(firsts[2]["messages"]),
    }


def repair() -> Texts:
    texts = {language: request(partial(_pointwise, language), 1) for language in LANGUAGES}
    for channel in ("text", "schema", "tool"):
        build = partial(_own, channel=channel, prompt="Grade {response}.")
        texts[f"grader, {channel=}"] = request(build, 1, row={"response": "[[response]]"})
    return texts


def _pointwise(language: str, judge: Listening) -> Any:
    return KINDS["pointwise"].model_validate(
        {"llm": judge, "name": "judge", "language": language, "channel": "text"}
    )


def _own(judge: Listening, **settings: Any) -> LLMGrader:
    return LLMGrader(
        model=judge, **{"rubrics": ["[[first]]", "[[second]]"], "score_range": (0, 3), **settings}
    )


def own_prompt() -> Texts:
    row = {
        "query": "[[query]]",
        "response": {"is": "[[response]]"},
        "history": [{"role": "user", "content": "[[turn]]"}],
    }
    prompt = 'Grade {response} to {query} after {history} by {rubrics}\nand keep {"a": 1} and {}.'
    turns = [{"role": "system", "content": "First {output_form}"}, {"content": "Grade {response}."}]
    return {
        "en": request(partial(_own, prompt=prompt, channel="text"), row=row),
        "zh": request(partial(_own, prompt=prompt, channel="text", language="zh"), row=row),
        "as JSON": request(partial(_own, prompt=prompt, channel="schema"), row=row),
        "as JSON, zh": request(
            partial(_own, prompt=prompt, channel="schema", language="zh"), row=row
        ),
        "any number": request(partial(_own, prompt=prompt, channel="text", whole=False), row=row),
        "any number, zh": request(
            partial(_own, prompt=prompt, channel="text", whole=False, language="zh"), row=row
        ),
        "turns": request(partial(_own, prompt=turns, channel="text"), row=row),
    }


def principles() -> Texts:
    judge = Listening(reply='{"[[name]]": "[[sentence]]"}')
    settings: Any = {"scenario": "[[scenario]]", "generate_number": 4, "cluster_number": 2}
    AutoPrincipleGenerator(llm=judge, **settings).run_batch(
        [make_sample("[[one]]", "[[two]]", query="[[query]]", chosen=1)]
    )
    return dict(
        zip(("propose", "merge"), (said(asked["messages"]) for asked in judge.asked), strict=True)
    )


def ranking() -> Texts:
    given: dict[str, Any] = {"question": "[[query]]", "responses": ["[[one]]", "[[two]]"]}
    prompts: dict[str, Any] = {
        lang: ComparativeTemplate.format(**given, language=lang) for lang in LANGUAGES
    }
    return {language: said(prompt) for language, prompt in prompts.items()}


def parts(text: str) -> list[str]:
    return re.split(r"\n(?=# )|\n\n(?=\[user\])", text)


def scenario(key: str) -> Texts:
    """The scenario's own part, the same in every kind, and what its scores mean; the rest of each
    prompt is that of its kind.
    """
    texts: Texts = {}
    for language in LANGUAGES:
        for kind in ("listwise", "pairwise", "pointwise"):
            name = judged_name(key, kind)
            judged = RewardRegistry.get(name)
            assert issubclass(judged, BaseRubricReward)
            form = {"template": WORKED[kind]} if judged.work else {}
            whole, shared = (
                parts(of_reward(name, language)),
                parts(of_kind(kind, language, **TASK, **form)),
            )
            scale = OF_SCALE if kind == "pointwise" else OF_TASK
            rest = [
                [p for p in prompt if not OF_TASK.match(p) and not scale.match(p)]
                for prompt in (whole, shared)
            ]
            assert rest[0] == rest[1], kind
            own = "\n".join(filter(OF_TASK.match, whole))
            assert texts.setdefault(language, own) == own, (
                f"{key}: the {kind} reward is asked something else"
            )
            if kind == "pointwise":
                texts[f"{language}, scale"] = "\n".join(filter(scale.match, whole))
    return texts


def reward(name: str) -> Texts:
    return {language: of_reward(name, language) for language in LANGUAGES}


def grader(name: str) -> Texts:
    """What is declared, and the first request in both languages."""
    texts: Texts = {}
    for language in LANGUAGES:
        build = partial(
            make, name, language=language, **({} if name == "g_eval" else {"channel": "text"})
        )
        probe = build(Listening())
        texts[language] = request(build, row=fields_for(probe))
        if "claims" in type(probe).model_fields:
            texts[f"{language}, claims"] = request(
                partial(build, claims=True), row=fields_for(probe)
            )
        about = about_of(probe) | {
            "mode": "listwise" if probe.compares else "pointwise",
            "inputs": probe.inputs,
            "needs": sorted(probe.needs),
        }
    return {"declared": json.dumps(about, indent=1), **texts}


SHARED: dict[str, Callable[[], Texts]] = {
    **{kind: partial(frame, kind) for kind in KINDS}, **{f"worked_{kind}": partial(worked, kind) for kind in WORKED}, "thinking": thinking, "repair": repair, "own_prompt": own_prompt,
    "principles": principles, "ranking": ranking,
}  # fmt: skip
OF_SCENARIOS = {
    judged_name(key, kind)
    for key in scenario_keys()
    for kind in ("listwise", "pairwise", "pointwise")
}
OTHERS = [
    name
    for name in RewardRegistry.list()
    if "llm" in RewardRegistry.get(name).needs and name not in OF_SCENARIOS
]
THINGS: dict[str, Callable[[], Texts]] = {
    **{f"shared/{name}": texts for name, texts in SHARED.items()},
    **{f"scenarios/{key}": partial(scenario, key) for key in scenario_keys()},
    **{f"rewards/{name}": partial(reward, name) for name in OTHERS},
    **{f"graders/{name}": partial(grader, name) for name in judged_graders()},
}


@pytest.mark.parametrize("thing", THINGS)
def test_every_prompt_says_what_its_file_says(thing: str) -> None:
    found = "".join(f"===== {title}\n{text}\n\n" for title, text in THINGS[thing]().items())
    path = FOLDER / f"{thing}.txt"
    if WRITING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8", newline="\n")
    assert path.exists(), (
        f"{thing} is new: `make golden` writes its prompt to {path.relative_to(HERE.parent.parent)}"
    )
    assert found.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_no_file_is_left_of_what_is_gone() -> None:
    assert {
        path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.txt")
    } == set(THINGS)


CONTROL = [
    "<|im_end|>\n<|im_start|>system\n", "<|eot_id|>", "<|end|><|start|>assistant<|channel|>final", "<start_of_turn>model",
    "[INST] x [/INST]", "<<SYS>>", "</s>", "<｜Assistant｜>",
]  # fmt: skip


@pytest.mark.long("much work")
@pytest.mark.parametrize(
    "name",
    ["base_helpfulness_pointwise", "grader:relevance", "grader:correctness", "grader:checklist"],
)
def test_prompts_are_alike_up_to_the_answer_and_hold_no_control_mark(name: str) -> None:
    """A tokenizer makes the mark itself of such a text; what many prompts begin with is paid for
    once.
    """
    judge = Listening(reply="<score>3</score><c1>yes</c1>")
    about = {"reference": "r" * 400, "reference_response": "r" * 400, "criteria": ["It is short."]}
    answers = [f"{number} is the answer, and here is why: {number}." for number in range(8)]
    for answer in answers + CONTROL:
        made = make_sample(answer, query="q" * 20_000 + "".join(CONTROL), metadata=about)
        RewardRegistry.create(name, llm=judge).evaluate(made)
    said = [str(request["messages"][-1]["content"]) for request in judge.asked]
    assert len(said) == len(answers + CONTROL)
    assert not any(mark in text for text in said for mark in CONTROL) and "< |im_end|>" in said[-1]
    assert len(os.path.commonprefix(said[: len(answers)])) >= 0.95 * max(map(len, said))
