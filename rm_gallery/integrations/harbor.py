"""A reward as the verifier of a Harbor task: `reward.json` and `reward.txt` in the verifier's folder.

In Harbor's default mode the agent can write to that folder before the verifier runs, and a
`reward.json` of its own would count. So whatever stands there is removed before anything is judged,
no link is followed, and each file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import open_below
from rm_gallery.integrations.scoring import RowScorer, for_training

FOLDER = "/logs/verifier"
FILES = ("reward.json", "reward.txt")
MAX_ANSWER = 8 << 20
"""Bytes of an answer that is read from the workspace."""


def write_harbor_reward(
    reward: object,
    completion: str | list[dict[str, Any]] | Path,
    *,
    prompt: str | list[dict[str, Any]] = "",
    row: Mapping[str, Any] | None = None,
    workspace: str | Path = ".",
    folder: str | Path = FOLDER,
    **scoring: Any,
) -> Score[float]:
    """Score a finished answer and write the score as Harbor's reward, in place of what was there.

    Run it in the task's `tests/test.sh`, after the agent's processes have ended.

    Args:
        reward: whatever `RowScorer` takes.
        completion: the answer, text or messages; a Path is a file below `workspace` that holds it.
        prompt: what was asked.
        row: the task's columns, with its reference; keep them where the agent cannot read.
        workspace: the agent's folder, for a Path.
        folder: the verifier's folder; it is made where it is missing.
        **scoring: `reference`, `columns`, `llm`, `options`, … of `RowScorer`.

    Returns:
        The outcome, in the reward's own range and direction. `reward.json` holds `{"reward": score,
        COMPONENT: number, …}` and `reward.txt` the score. Without a score there is neither file,
        which Harbor takes as a verifier that failed: a missing score is never a 0. An answer that
        is missing (a Path without a file), or no plain UTF-8 file, is judged as the empty answer.

    Raises:
        ConfigError: the reward cannot score, compares completions, or this system cannot keep to a
            folder.
        DataError: the folder is a link, or no folder.

    Source: Harbor's verifier, which reads these files (version 0.22).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     forged = Path(folder, "reward.json")
        ...     _ = forged.write_text('{"reward": 1.0}')
        ...     found = write_harbor_reward(
        ...         "accuracy", "41", row={"reference": "42"}, folder=folder
        ...     )
        ...     print(found.value, forged.read_text())
        0.0 {"reward": 0.0}
    """
    if os.open not in os.supports_dir_fd:
        raise ConfigError("this system has no way to keep to a folder; run the verifier on Linux.")
    at = _opened(Path(folder))
    try:
        for name in FILES:
            _remove(name, at)
        scorer = for_training(
            RowScorer(reward, **scoring), one_by_one="A verifier sees one answer."
        )
        answer = (
            _answer_in(Path(workspace), completion) if isinstance(completion, Path) else completion
        )
        found = scorer.score(prompt, answer, row)
        if found.value is not None:
            parts = {k: v for k, v in found.components.items() if k != "reward"}
            _write("reward.json", json.dumps({"reward": found.value, **parts}), at)
            _write("reward.txt", f"{found.value!r}\n", at)
        return found
    finally:
        os.close(at)


def _opened(folder: Path) -> int:
    """The folder itself, not what a link of its name leads to."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise DataError(
            f"{folder} is a link, or no folder; the reward is written to a folder alone."
        ) from error


def _remove(name: str, at: int) -> None:
    """Make the name free: a file or link is removed, a folder gets another name."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=at)
        except (IsADirectoryError, PermissionError):  # as Linux and macOS say it of a folder
            os.rename(name, f"{name}.{secrets.token_hex(8)}", src_dir_fd=at, dst_dir_fd=at)


def _write(name: str, text: str, at: int) -> None:
    part = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=at), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _remove(name, at)
    os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)


def _answer_in(workspace: Path, path: Path) -> str:
    """The text of a file of the workspace; empty for none, a link, or what is no text."""
    try:
        with open_below(workspace, workspace / path) as file:
            text = file.read(MAX_ANSWER + 1)
        return text.decode() if len(text) <= MAX_ANSWER else ""
    except (FileNotFoundError, DataError, UnicodeDecodeError):
        return ""
    except ValueError as error:
        raise ConfigError(f"{path} is not below {workspace}; give a path inside it.") from error
