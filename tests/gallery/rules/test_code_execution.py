"""Code of answers runs in a sandbox: what it does there costs its own test and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable
from tests.support.samples import make_sample, scores
from tests.support.system import require_bubblewrap

DOUBLE = "```python\ndef double(x):\n    return 2 * x\n```"
TESTS = {"tests": ["assert double(2) == 4", "assert double('a') == 'aa'", "assert double(1) == 7"]}


@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def double(x):\n    while True: pass\n", "deadline"),
        ("import os\nos._exit(0)\n", "crashed exit code 0"),
        ("print('passed')\nraise SystemExit(0)\n", "error: SystemExit"),
        ("x = bytearray(10 ** 10)\n", "memory"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 1))\n", "error"),
        ("import os\nprint(os.environ['RM_GALLERY_SECRET'])\n", "error: KeyError"),
    ],
)
def test_what_goes_wrong_is_a_test_failed(code: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_bubblewrap()
    monkeypatch.setenv("RM_GALLERY_SECRET", "s")
    sample = make_sample(f"```python\n{code}```", DOUBLE, metadata={"tests": ["assert double(2) == 4"]})
    scored = RewardRegistry.create("code_execution", timeout=1.0, memory_mb=256).evaluate(sample)
    assert scores(scored) == [0, 1]
    assert told in (scored.output[0].answer.reward.details[0].reason or "")


@pytest.mark.system("bubblewrap")
def test_expected_values_are_not_told() -> None:
    require_bubblewrap()
    tests = {"inputs": ["0", "1", "2"], "outputs": ["secret0", "secret1", "secret2"]}
    sample = make_sample("```python\nprint('no')\n```", metadata={"inputs_outputs": tests})
    scored = RewardRegistry.create("code_execution").evaluate(sample)
    assert scores(scored) == [0]
    assert "secret" not in scored.output[0].answer.reward.model_dump_json()


@pytest.mark.parametrize("name", ["code_execution", "code_unit_tests"])
def test_without_bubblewrap_it_tells_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sample = make_sample(DOUBLE, metadata=TESTS)
    with pytest.raises(SandboxUnavailable, match="nstall"):
        RewardRegistry.create(name).check()
    with pytest.raises(SandboxUnavailable, match="nstall"):
        RewardRegistry.create(name).evaluate_batch([sample])
    alone = RewardRegistry.create(name, sandbox="subprocess", all_or_nothing=False)
    assert scores(alone.evaluate(sample)) == [pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"sandbox": "docker"}, "unknown sandbox"), ({"sandbox": "fusion:x"}, "http"), ({"timeout": 0}, "timeout")],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RewardRegistry.create("code_execution", **settings).check()


def test_a_password_in_the_sandboxs_address_is_not_shown() -> None:
    reward = RewardRegistry.create("code_execution", sandbox="fusion:http://u:QsecretQ@127.0.0.1:9")
    assert "QsecretQ" not in f"{reward!r}{reward.describe()}{reward.model_dump_json()}"
