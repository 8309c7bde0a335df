"""A name that is not known is an error that lists the nearest ones, at every door."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from tests.support.command import command

TABLE: list[tuple[Callable[[], object], str]] = [
    (lambda: RewardRegistry.get("safty_listwise_reward"), "no reward 'safty_listwise_reward'. Did you mean safety_lis"),
    (lambda: RewardRegistry.get("safty"), "Did you mean safety_listwise_reward, safety_pairwise_reward, "),
    (lambda: OpenaiLLM(model="m", base_url="localhost:1"), "OpenaiLLM: base_url is not a URL: found 'localhost:1'"),
    (lambda: RewardRegistry.get("xyzzy"), "no reward 'xyzzy'. Known: accuracy, "),
    (lambda: RewardRegistry.create("accuracy", ignorecase=True), "'ignorecase'. Did you mean ignore_case"),
    (lambda: RewardRegistry.create("safety_listwise_reward", rubric=["x"]), "'rubric'. Did you mean rubrics"),
    (lambda: OpenaiLLM(modle="x"), "'modle'. Did you mean model"),  # type: ignore[call-arg]
    (lambda: create_loader("x", data_source="rewardbench3", config={"path": "x"}), "did you mean 'rewardbench'"),
    (lambda: create_loader("x", data_source="*", config={"pth": "x"}), "unknown config key 'pth'"),
    (lambda: create_loader("x", "lokal", config={}), "unknown load strategy 'lokal'; did you mean 'local'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=[message for _, message in TABLE])
def test_unknown_names(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert message in str(caught.value)


def test_an_unknown_reward_on_the_command_line() -> None:
    done = command("show", "lenght_baseline")
    assert (done.code, done.out) == (2, "")
    assert "no reward 'lenght_baseline'. Did you mean length_baseline" in done.err
