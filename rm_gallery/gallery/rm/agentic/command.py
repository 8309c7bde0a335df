"""A judge that is a command: an agent of the command line that opens the workspace and leaves a verdict
in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rubric import Rubric
from rm_gallery.core.reward.schema import Example
from rm_gallery.core.sandbox.process import kill_group
from rm_gallery.core.sandbox.workspace import temporary_folder
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.agentic.judge import INPUTS, LEFT, VERDICT_FILE, ActingJudge
from rm_gallery.gallery.rm.agentic.tools import Toolbox
from rm_gallery.gallery.rm.agentic.verdict import (
    SUBMIT,
    CriterionDecision,
    VerdictProblem,
    read_verdict,
    submit_tool,
)

_LARGEST = 4 << 20
_READS = """
import json, sys
quote = open("total.txt").read().strip()
evidence = [{"source": "file:total.txt", "quote": quote}]
row = {"criterion": 1, "verdict": quote == "7", "evidence": evidence}
json.dump({"verdicts": [row]}, open(sys.argv[1], "w"))
"""
TOLD = {
    "en": "Write the verdict as one JSON object to the file {verdict}, in this form:",
    "zh": "把判定写成一个 JSON 对象，存入文件 {verdict}，格式如下：",
}


@RewardRegistry.register("unisolated_command_judge")
class UnisolatedCommandJudge(ActingJudge):
    """A command decides criteria by what it finds in what the agent left; it runs with your rights.

    `command` is a list such as `["my-agent", "--prompt-file", "{task}"]`: `{task}` stands for a file
    with the task, the criteria and the form of the verdict, `{verdict}` for the file that it leaves
    its verdict in, `{workspace}` for a copy of the workspace, which is its folder. Both files are
    outside of the workspace. It sees the variables that `environment` names, and PATH and HOME.
    There are no walls around it: give it workspaces you trust, or a command that isolates itself.
    Samples are as for `agent_judge`.

    Range [0, 1], higher is better, as `agent_judge` has it. No score with cause `judge` where it
    leaves no verdict (`no_verdict`), two (`two_verdicts`), one that cannot be taken (`verdict`), or
    takes too long (`exhausted`). Raises ConfigError without a command, or where it cannot be started.
    """

    sandbox: ClassVar[str] = "subprocess"
    name: str = "unisolated_command_judge"
    command: list[str] = Field(default_factory=list)
    """The program and its arguments."""
    environment: list[str] = Field(default_factory=list)
    """Names of environment variables that the command may see."""

    example = Example(
        LEFT,
        params={"command": ["python3", "-c", _READS, "{verdict}"]},
        note="A small program stands in for an agent here.",
        use="They filter trajectories and train where no rule can tell whether work was done.",
        inputs=INPUTS,
    )

    def check(self) -> None:
        """Raise ConfigError without a command."""
        if not self.command:
            raise ConfigError(f"{self.name} has no command: pass command=[PROGRAM, …].")

    async def _decide(
        self, sample: DataSample, rubric: Rubric, tools: Toolbox, recorded: list[Any] | None
    ) -> tuple[list[CriterionDecision], list[dict[str, Any]]]:
        if recorded is not None:
            verdict = recorded[-1]["content"] if recorded else ""
        else:
            self.check()
            verdict = await self._run(self._task(sample, rubric, tools), tools)
        try:
            decisions = read_verdict(self._verdict_in(verdict), rubric.leaves(), tools)
        except VerdictProblem as problem:
            raise Unscored(f"{self.name}: {problem}", reason="verdict", cause="judge") from problem
        return decisions, [{"role": "assistant", "content": verdict}]

    def _task(self, sample: DataSample, rubric: Rubric, tools: Toolbox) -> str:
        prompt = self._prompt(sample, rubric, tools)
        form = json.dumps(submit_tool()["function"]["parameters"], ensure_ascii=False)
        told = TOLD[self.language].format(verdict="{verdict}")
        return "\n\n".join([*(message["content"] for message in prompt), told, form])

    async def _run(self, task: str, tools: Toolbox) -> str:
        """What the command left as its verdict."""
        with temporary_folder() as own:
            files = {"task": f"{own}/task.md", "verdict": f"{own}/{VERDICT_FILE}"}
            files["workspace"] = tools.folder or own
            Path(files["task"]).write_text(
                task.replace("{verdict}", files["verdict"]), encoding="utf-8", errors="replace"
            )
            arguments = [_argument(part, files) for part in self.command]
            names = {"PATH", "HOME", *self.environment}
            try:
                process = await asyncio.create_subprocess_exec(
                    *arguments,
                    cwd=files["workspace"],
                    env={name: os.environ[name] for name in names if name in os.environ},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(
                    f"{self.name}: the command {excerpt(arguments[0])!r} cannot be started: "
                    f"{error.strerror}."
                ) from error
            try:
                await asyncio.wait_for(process.wait(), self.max_seconds)
            except asyncio.TimeoutError as error:
                raise Unscored(
                    f"{self.name}: the command took more than {self.max_seconds:g} seconds "
                    "(max_seconds).",
                    reason="exhausted",
                    cause="judge",
                ) from error
            finally:
                # what it started may outlive it
                kill_group(process.pid)
                await process.wait()
            return self._left(Path(files["verdict"]), process.returncode)

    def _left(self, verdict: Path, code: int | None) -> str:
        if verdict.is_symlink() or not verdict.is_file() or verdict.stat().st_size > _LARGEST:
            raise Unscored(
                f"{self.name}: the command ended with {code} and left no verdict.",
                reason="no_verdict",
                cause="judge",
            )
        return verdict.read_text(encoding="utf-8", errors="replace")

    def _verdict_in(self, text: str) -> Any:
        try:
            first, end = json.JSONDecoder().raw_decode(text.lstrip("\ufeff \t\r\n"))
        except (ValueError, RecursionError) as error:
            raise VerdictProblem(f"{SUBMIT}: the file holds no JSON object.") from error
        if text.lstrip("\ufeff \t\r\n")[end:].strip():
            raise Unscored(
                f"{self.name}: the command left more than one verdict.",
                reason="two_verdicts",
                cause="judge",
            )
        return first


def _argument(part: str, files: dict[str, str]) -> str:
    for name, path in files.items():
        part = part.replace(f"{{{name}}}", path)
    return part
