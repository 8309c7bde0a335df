"""The trainers' own packages, each in a virtual environment of its own that is made once and kept.

An environment sees every package of the one the tests run in (so torch is not fetched twice) and
puts the trainer's own pins before them. Mostly exact pins without dependencies: a trainer's full
list wants GPUs, the code that calls a reward does not.
`python -m tests.trainers.environments [NAME ...]` makes them ahead of the tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True)
class Trainer:
    """What is installed, what of it must import, and the Python versions it is for (from the first,
    below the second).
    """

    pins: str
    imports: str
    python: tuple[tuple[int, int], tuple[int, int]] = ((3, 10), (3, 15))
    dependencies: bool = False
    """Whether pip adds what the packages ask for; else the packages are all that the code under
    test imports.
    """

    @property
    def packages(self) -> tuple[str, ...]:
        """One by one."""
        return tuple(self.pins.split())


TRAINERS: dict[str, Trainer] = {
    "verl": Trainer(
        "verl==0.9.1 ray==2.60.0 tensordict==0.15.3 omegaconf==2.3.1 hydra-core==1.3.8 "
        "antlr4-python3-runtime==4.9.3 codetiming==1.4.0 msgpack==1.2.4 protobuf==7.36.2 "
        "pyvers==0.2.3",
        "import verl.trainer.ppo.reward, verl.experimental.reward_loop.reward_manager",
        python=((3, 10), (3, 13)),
    ),
    # its wheel is tagged for this Python only; nothing that it imports before a GPU is
    "openrlhf": Trainer(
        "openrlhf==0.11.2 pylatexenc==2.11",
        "import openrlhf.utils.agent",
        python=((3, 11), (3, 12)),
    ),
    "skyrl": Trainer("skyrl-gym==0.4.0", "import skyrl_gym.envs.gsm8k.env"),
    "openenv": Trainer("openenv==0.10.0", "import openenv.core.rubrics", dependencies=True),
    "openreward": Trainer(
        "openreward==0.1.167", "import openreward", python=((3, 11), (3, 15)), dependencies=True
    ),
    "nemo-gym": Trainer(
        "nemo-gym==0.7.0",
        "import nemo_gym.base_resources_server",
        python=((3, 13), (3, 15)),
        dependencies=True,
    ),
    # its full list wants GPUs; these are what its rollout and reward code imports
    "areal": Trainer(
        "areal==1.0.4 ray==2.60.0 numba==0.68.1 llvmlite==0.50.0 torchdata==0.11.0 "
        "omegaconf==2.4.0.dev2 hydra-core==1.4.0.dev1 aiofiles==25.1.0 blinker==1.9.0 "
        "colorlog==6.12.0 einops==0.8.2 Flask==3.1.3 itsdangerous==2.2.0 lark==1.3.1 "
        "pillow==13.0.0 msgpack==1.2.4 protobuf==7.36.2 tenacity==9.2.1",
        "import areal.workflow.rlvr, areal.infra.remote_inf_engine",
        python=((3, 11), (3, 13)),
    ),
    "tools": Trainer(
        "langsmith==0.15.0 langfuse==5.0.4",
        "import langsmith.evaluation, langfuse.experiment",
        dependencies=True,
    ),
    "verifiers-v0": Trainer(
        "verifiers==0.1.14 tenacity==9.2.1", "import verifiers; verifiers.Rubric"
    ),
    # wants openai < 3, which must not reach the environment of the tests
    "verifiers": Trainer(
        "verifiers==0.4.0",
        "import verifiers.v1 as vf; vf.Task",
        python=((3, 11), (3, 15)),
        dependencies=True,
    ),
}


class CannotBeMade(Exception):
    """The environment cannot be made on this machine; the message says why."""


class OtherPython(CannotBeMade):
    """The package is for other Pythons than this one, which no installation mends."""


def run(name: str, program: str, request: Any, *, timeout: float = 120.0, **variables: str) -> Any:
    """Run `programs/PROGRAM` in the trainer's environment: `request` goes in as JSON, the last line
    out is the JSON answer.

    Skips the test where the environment was not made: tests install nothing.
    """
    try:
        base, python = _place(name)
    except CannotBeMade as error:
        pytest.skip(f"{name}: {error}")
    if not (base / "complete").exists():
        pytest.skip(
            f"{name}: its environment is not made (python -m tests.trainers.environments {name})"
        )
    command = [str(python), str(PROGRAMS / program)]
    own = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        command, input=json.dumps(request), capture_output=True, text=True, timeout=timeout, env=own
    )
    if done.returncode != 0:
        raise AssertionError(
            f"{program} ended with {done.returncode} in {name}'s "
            f"environment:\n{done.stderr[-4000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def make(name: str) -> Path:
    """Make the environment unless it is there; give its Python. Processes that want the same one
    wait for each other.

    Raises:
        CannotBeMade: Another Python is needed, or the packages cannot be fetched.
    """
    base, python = _place(name)
    with _lock(base.with_suffix(".lock")):
        if not (base / "complete").exists():
            shutil.rmtree(base, ignore_errors=True)
            _build(base, python, TRAINERS[name])
    return python


def _place(name: str) -> tuple[Path, Path]:
    """Folder and Python of the environment, whether it is made or not; CannotBeMade where it is for
    another Python.
    """
    trainer = TRAINERS[name]
    low, high = trainer.python
    if not low <= sys.version_info[:2] < high:
        raise OtherPython(f"needs Python >= {low[0]}.{low[1]}, < {high[0]}.{high[1]}")
    key = json.dumps([trainer.packages, trainer.imports, sys.version, _seen()])
    base = _folder() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    return base, base / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _seen() -> str:
    return sysconfig.get_paths()["purelib"]


def _build(base: Path, python: Path, trainer: Trainer) -> None:
    venv.create(base, with_pip=False, symlinks=os.name != "nt")
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(base), "platbase": str(base)}))
    # a path of a .pth file comes after the folder it is in
    (site / "zz_seen.pth").write_text(f"{_seen()}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = "install --quiet --disable-pip-version-check --no-compile".split()
    alone = [] if trainer.dependencies else ["--no-deps"]
    _step([*pip, *install, *alone, *trainer.packages], "its packages cannot be installed")
    _step([str(python), "-c", trainer.imports], "what calls a reward cannot be imported")
    (base / "complete").touch()


def _step(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise CannotBeMade(f"{failure} ({lines[-1][:300]})")


def _folder() -> Path:
    told = os.environ.get("RM_GALLERY_TRAINERS")
    folder = Path(told) if told else Path.home() / ".cache" / "rm-gallery-tests" / "trainers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("ab") as handle:
        if os.name != "nt":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """Make the named environments, all of them without a name; 1 when one cannot be made for this
    Python.
    """

    def made(name: str) -> Path | CannotBeMade:
        try:
            return make(name)
        except CannotBeMade as error:
            return error

    asked = names or list(TRAINERS)
    with ThreadPoolExecutor(3) as making:  # each mostly waits for a server or for a child process
        found = list(making.map(made, asked))
    sys.stdout.writelines(f"{name}: {what}\n" for name, what in zip(asked, found, strict=True))
    lost = [what for what in found if isinstance(what, CannotBeMade)]
    return int(any(not isinstance(what, OtherPython) for what in lost))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
