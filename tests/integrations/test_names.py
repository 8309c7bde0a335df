"""A reward's name means the same at every adapter and at the server as at every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rm_gallery import BaseReward, ConfigError, FakeLLM
from rm_gallery.cli.serve import named_rewards
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.trl import trl_rewards
from rm_gallery.serve.app import create_app
from rm_gallery.serve.formats import NATIVE
from rm_gallery.serve.handler import Handler
from rm_gallery.train.bradley_terry import train_bradley_terry
from tests.integrations.adapters import ADAPTERS, Row, waited
from tests.serve.asking import post
from tests.support.spelled import JUDGED, NO_MODEL, SPELLED, WRONG, write_files

JUDGE = "fake:<reason>Polite.</reason><c1>yes</c1><score>4</score>"


pytestmark = pytest.mark.usefixtures("there")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)


def trained() -> str:
    pairs = [sample_of(f"q{k}", "a long and good answer", "bad") for k in range(8)]
    for pair in pairs:
        pair.output[0].answer.label, pair.output[1].answer.label = (
            {"preference": "chosen"},
            {"preference": "rejected"},
        )
    train_bradley_terry(pairs, Path("model"))
    return "bt:model"


def asked(made: Any, name: str) -> Any:
    adapter = ADAPTERS[name]
    return adapter.score(waited(adapter.call(made, Row("q", "<answer>1</answer>", "1"))))


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_spelling_is_known_to_every_adapter(name: str) -> None:
    adapter = ADAPTERS[name]
    scores = {spelled: asked(adapter.make(spelled, **adapter.given), name) for spelled in SPELLED}
    assert all(isinstance(score, float) for score in scores.values()), scores
    assert len({scores[spelled] for spelled in SPELLED[:4]}) == 1, (
        "the same reward however it is spelled"
    )
    for spelled in JUDGED:
        assert isinstance(asked(adapter.make(spelled, llm=JUDGE), name), float), spelled


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_wrong_name_is_the_same_line_at_every_adapter(name: str) -> None:
    for wrong, said in {**WRONG, **NO_MODEL}.items():
        with pytest.raises(ConfigError) as refused:
            asked(ADAPTERS[name].make(wrong), name)
        assert said in str(refused.value), (wrong, str(refused.value))


def by_name(spelled: str, llm: str | None) -> BaseReward:
    return named_rewards([f"it={spelled}"], None, llm, None)["it"]


def by_config(spelled: str, llm: str | None) -> BaseReward:
    Path("serve.yaml").write_text(
        yaml.safe_dump({"rewards": {"it": {"reward": spelled, **({"llm": llm} if llm else {})}}})
    )
    return named_rewards([], Path("serve.yaml"), None, None)["it"]


def by_config_and_option(spelled: str, llm: str | None) -> BaseReward:
    Path("serve.yaml").write_text(yaml.safe_dump({"rewards": {"it": {"reward": spelled}}}))
    return named_rewards([], Path("serve.yaml"), llm, None)["it"]


SERVED = (by_name, by_config, by_config_and_option)


@pytest.mark.long("much work")
@pytest.mark.parametrize("served", SERVED)
def test_every_spelling_is_known_to_the_server(
    served: Callable[[str, str | None], BaseReward],
) -> None:
    found = {}
    for spelled in (*SPELLED, trained(), *JUDGED):
        handler = Handler({"it": served(spelled, JUDGE if spelled in JUDGED else None)})
        app = create_app(handler, codecs=[codec for codec in NATIVE if codec.name == "reward"])
        row = {"prompt": "q", "completion": "<answer>1</answer>", "reference": "1"}
        found[spelled] = post(app, "/v1/rewards/it", row).json()
    assert all(isinstance(told["score"], float) for told in found.values()), found
    assert len({found[spelled]["score"] for spelled in SPELLED[:4]}) == 1


@pytest.mark.parametrize("served", SERVED)
def test_a_wrong_name_is_the_same_line_at_the_server(
    served: Callable[[str, str | None], BaseReward],
) -> None:
    for wrong, said in {**WRONG, **NO_MODEL}.items():
        with pytest.raises(ConfigError) as refused:
            served(wrong, None)
        assert said in str(refused.value), (wrong, str(refused.value))


# -- a judge for several rewards -------------------------------------------------------------------


def by_trl(rewards: list[str]) -> None:
    trl_rewards(rewards, llm=JUDGE)


def by_benchmax(rewards: list[str]) -> None:
    settings = {
        "rewards": dict(zip("ab", rewards, strict=True)),
        "llm": FakeLLM(reply="<score>4</score>"),
    }
    type("Env", (BenchmaxRewards,), settings)().scorers()


def by_server(rewards: list[str]) -> None:
    named_rewards(rewards, None, JUDGE, None)


@pytest.mark.parametrize("given", [by_trl, by_benchmax, by_server])
def test_a_judge_is_for_those_that_ask_one_and_refused_where_none_does(
    given: Callable[[list[str]], None],
) -> None:
    given(["accuracy", "relevance"])
    with pytest.raises(ConfigError, match="accuracy, sound.py call no model; leave out --llm"):
        given(["accuracy", "sound.py"])
