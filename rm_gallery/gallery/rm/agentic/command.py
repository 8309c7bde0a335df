"""A judge that is a command: an agent of the command line that opens the workspace and leaves a verdict
in a file.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rubric import Rubric
from rm_gallery.core.reward.schema import Example
from rm_gallery.core.sandbox.floor import executable, floor
from rm_gallery.core.sandbox.process import kill_children, kill_group
from rm_gallery.core.sandbox.workspace import ReadBounds, StateFault, Workspace, temporary_folder
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.agentic.judge import INPUTS, LEFT, VERDICT_FILE, ActingJudge
from rm_gallery.gallery.rm.agentic.tools import Toolbox
from rm_gallery.gallery.rm.agentic.verdict import (
    SUBMIT,
    Decided,
    VerdictProblem,
    read_verdict,
    says_twice,
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
_BECOME = """
import signal, sys
for ignored in ("SIGPIPE", "SIGXFSZ"):
    signal.signal(getattr(signal, ignored), signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[2:])
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
    There are no walls around its files and its network: give it workspaces you trust, or a command
    that isolates itself. It and all it starts end together and, where Linux gives a process namespace,
    reach no other process; elsewhere it can end your session. Samples are as for `agent_judge`.

    Range [0, 1], higher is better, as `agent_judge` has it. No score with cause `judge` where it
    leaves no verdict (`no_verdict`), two (`two_verdicts`) or one that cannot be taken (`verdict`),
    with cause `endpoint` where it takes longer than `max_seconds` (`exhausted`), as it may wait for
    a model. Raises ConfigError without a command, or where it cannot be started;
    SandboxUnavailable as root where there is no process namespace.
    """

    sandbox = "subprocess"
    name = "unisolated_command_judge"
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
    ) -> Decided:
        if recorded is not None:
            verdict = str(recorded[-1].get("content") or "") if recorded else ""
        else:
            self.check()
            verdict = await self._run(sample, rubric, tools)
        tools.opened = None  # it opens files by itself
        try:
            decisions = read_verdict(self._verdict_in(verdict), rubric.leaves(), tools)
        except VerdictProblem as problem:
            raise self.no_verdict("verdict", str(problem)) from problem
        return decisions, [{"role": "assistant", "content": verdict}]

    def _task(self, sample: DataSample, rubric: Rubric, tools: Toolbox, verdict: str) -> str:
        prompt = self._prompt(sample, rubric, tools)
        form = json.dumps(submit_tool()["function"]["parameters"], ensure_ascii=False)
        told = TOLD[self.language].format(verdict=verdict)
        return "\n\n".join([*(message["content"] for message in prompt), told, form])

    async def _run(self, sample: DataSample, rubric: Rubric, tools: Toolbox) -> str:
        """What the command left as its verdict."""
        with temporary_folder() as own:
            files = {"task": f"{own}/task.md", "verdict": f"{own}/{VERDICT_FILE}"}
            files["workspace"] = tools.folder or own
            task = self._task(sample, rubric, tools, files["verdict"])
            Path(files["task"]).write_text(task, encoding="utf-8", errors="replace")
            arguments = [
                re.sub(r"\{(task|verdict|workspace)\}", lambda found: files[found[1]], part)
                for part in self.command
            ]
            names = {"PATH", "HOME", *self.environment}
            program = shutil.which(arguments[0])
            if program is None:
                raise ConfigError(
                    f"{self.name}: the command {excerpt(arguments[0])!r} cannot be started: "
                    f"{os.strerror(errno.ENOENT)}."
                )
            entry = floor(files=True).entry(_BECOME)
            process = await asyncio.create_subprocess_exec(
                *(executable(), "-I", "-S", "-c", entry, os.path.abspath(program), *arguments),
                cwd=files["workspace"],
                env={name: os.environ[name] for name in names if name in os.environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                await asyncio.wait_for(process.wait(), self.max_seconds)
            except asyncio.TimeoutError as error:
                late = f"the command took more than {self.max_seconds:g} seconds (max_seconds)."
                # how much of it was a wait for its own model nobody sees: no answer pays for it
                raise self.no_verdict("exhausted", late, "endpoint") from error
            finally:
                # what it started may outlive it
                kill_children(process.pid)
                kill_group(process.pid)
                await process.wait()
            return self._left(own, process.returncode)

    def _left(self, folder: str, code: int | None) -> str:
        try:
            with Workspace(folder, ReadBounds(_LARGEST, 1)) as own:
                verdict = own.read(VERDICT_FILE)
        except StateFault:
            verdict = None
        if verdict is None:
            raise self.no_verdict(
                "no_verdict", f"the command ended with {code} and left no verdict."
            )
        return verdict.decode("utf-8", "replace")

    def _verdict_in(self, text: str) -> Any:
        text = text.lstrip("\ufeff \t\r\n")
        try:
            first, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError) as error:
            raise VerdictProblem(f"{SUBMIT}: the file holds no JSON object.") from error
        if text[end:].strip() or says_twice(text):
            raise self.no_verdict("two_verdicts", "the command left more than one verdict.")
        return first
