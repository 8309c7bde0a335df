"""A reward as Harbor's verifier: what the agent left there never counts, and no score is no file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataError, reward_function
from rm_gallery.integrations.harbor import MAX_ANSWER, write_harbor_reward
from tests.trainers.rewards import Parts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Harbor's verifiers run on Linux")
TRUTH = {"reference": "42"}
FORGED = '{"reward": 1.0}'


def reward_in(folder: Path) -> tuple[Any, float] | None:
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith("reward."))
    if not names:
        return None
    assert names == ["reward.json", "reward.txt"]
    for name in names:
        assert stat.S_ISREG((folder / name).lstat().st_mode)
    return json.loads((folder / "reward.json").read_text()), float(
        (folder / "reward.txt").read_text()
    )


def forged_file(folder: Path, outside: Path) -> None:
    (folder / "reward.json").write_text(FORGED)
    (folder / "reward.txt").write_text("1.0")


def forged_link(folder: Path, outside: Path) -> None:
    for name in ("reward.json", "reward.txt"):
        (folder / name).symlink_to(outside)


def forged_hard_link(folder: Path, outside: Path) -> None:
    (folder / "reward.json").hardlink_to(outside)


def forged_folder(folder: Path, outside: Path) -> None:
    (folder / "reward.json").mkdir()
    (folder / "reward.json" / "deep").write_text(FORGED)


def forged_pipe(folder: Path, outside: Path) -> None:
    os.mkfifo(folder / "reward.txt")


@pytest.mark.parametrize(
    "forge", [forged_file, forged_link, forged_hard_link, forged_folder, forged_pipe]
)
@pytest.mark.parametrize("answer, score", [("41", 0.0), ("42", 1.0)])
def test_what_the_agent_wrote_is_replaced(
    tmp_path: Path, forge: Any, answer: str, score: float
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "verifier"
    outside.write_text(FORGED)
    folder.mkdir()
    forge(folder, outside)
    found = write_harbor_reward("accuracy", answer, row=TRUTH, folder=folder)
    assert found.value == score
    json_text = (folder / "reward.json").read_text()
    assert (json.loads(json_text), float((folder / "reward.txt").read_text())) == (
        {"reward": score},
        score,
    )
    assert outside.read_text() == FORGED
    assert not (folder / "reward.json").is_symlink()


def test_without_a_score_there_is_no_file_and_the_forged_one_is_gone(tmp_path: Path) -> None:
    @reward_function
    def broken(messages: list[Any], **kwargs: Any) -> float:
        raise RuntimeError("no judge")

    forged_file(tmp_path, tmp_path)
    assert write_harbor_reward("accuracy", "42", folder=tmp_path).status == "unscored"
    assert reward_in(tmp_path) is None
    forged_file(tmp_path, tmp_path)
    assert write_harbor_reward(broken, "42", row=TRUTH, folder=tmp_path, worst=0.0).value is None
    assert reward_in(tmp_path) is None
    forged_file(tmp_path, tmp_path)
    with pytest.raises(ConfigError):
        write_harbor_reward("acuracy", "42", row=TRUTH, folder=tmp_path)
    assert reward_in(tmp_path) is None, "a verifier that cannot begin leaves nothing to be believed"


def test_the_folder_is_no_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(DataError, match="is a link"):
        write_harbor_reward("accuracy", "42", row=TRUTH, folder=tmp_path / "link")
    write_harbor_reward("accuracy", "42", row=TRUTH, folder=tmp_path / "new" / "verifier")
    assert reward_in(tmp_path / "new" / "verifier") == ({"reward": 1.0}, 1.0)
    assert reward_in(real) is None


def test_an_answer_is_a_plain_file_of_the_workspace(tmp_path: Path) -> None:
    work, folder = tmp_path / "work", tmp_path / "verifier"
    work.mkdir()
    (tmp_path / "solution.txt").write_text("42")
    (work / "answer.txt").write_text("42")
    (work / "stolen.txt").symlink_to(tmp_path / "solution.txt")
    (work / "bytes.txt").write_bytes(b"\xff\xfe")
    (work / "large.txt").write_bytes(b"4" * (MAX_ANSWER + 1))
    for name, score in (
        ("answer.txt", 1.0), ("stolen.txt", 0.0), ("none.txt", 0.0), ("bytes.txt", 0.0),
        ("large.txt", 0.0), ("../solution.txt", 0.0),
    ):  # fmt: skip
        found = write_harbor_reward(
            "accuracy", Path(name), row=TRUTH, workspace=work, folder=folder
        )
        assert found.value == score, name
        assert reward_in(folder) == ({"reward": score}, score)
    with pytest.raises(ConfigError, match="not below"):
        write_harbor_reward(
            "accuracy", tmp_path / "solution.txt", row=TRUTH, workspace=work, folder=folder
        )


def test_components_stand_beside_the_reward(tmp_path: Path) -> None:
    found = write_harbor_reward(Parts(), "42", row=TRUTH, folder=tmp_path)
    assert reward_in(tmp_path) == ({"reward": found.value, **found.components}, found.value)
    assert found.components
