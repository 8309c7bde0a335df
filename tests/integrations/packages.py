"""Stand-ins for the base classes of packages that are not installed here, as far as an adapter
builds on them.

The packages' own code calls the adapters in `tests/trainers`; these are for looking at an adapter's
every branch.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

STATISTICS: list[dict[str, float]] = []
"""What AReaL's tracker was told."""


class BaseTextEnv:
    """SkyRL's."""

    def __init__(self) -> None:
        self.turns = 0

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: sum(each[name] for each in metrics) / len(metrics) for name in metrics[0]}


class Rubric:
    """OpenEnv's."""

    def __init__(self) -> None:
        self._rubric_children: dict[str, Any] = {}
        self._forward_hooks: list[Any] = []
        self._forward_pre_hooks: list[Any] = []
        self.last_score: float | None = None

    def forward(self, action: Any, observation: Any) -> Any:
        raise NotImplementedError

    def __call__(self, action: Any, observation: Any) -> Any:
        found = self.forward(action, observation)
        return self._later(found) if inspect.isawaitable(found) else self._kept(found)

    async def _later(self, found: Any) -> Any:
        return self._kept(await found)

    def _kept(self, found: Any) -> Any:
        self.last_score = found
        return found

    def named_rubrics(self) -> Iterator[tuple[str, Any]]:
        for name, child in self._rubric_children.items():
            yield name, child
            yield from ((f"{name}.{inner}", each) for inner, each in child.named_rubrics())

    def reset(self) -> None:
        """Nothing is collected."""


class RLVRWorkflow:
    """AReaL's: an episode of one turn, whose reward is asked for by keywords of the row."""

    def __init__(
        self, reward_fn: Any, gconfig: Any, tokenizer: Any, enable_thinking: bool = False
    ) -> None:
        self.tokenizer, self.thinks = tokenizer, enable_thinking
        self.data_extract_prompt_fn = lambda row: row.get("messages")

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
        row = {name: value for name, value in data.items() if name != "completion"}
        return await self.async_reward_fn("templated", "", [1], data["completion"], **row)  # type: ignore[attr-defined]


MODULES: dict[str, dict[str, Any]] = {
    "skyrl_gym.envs.base_text_env": {"BaseTextEnv": BaseTextEnv},
    "openenv.core.rubrics": {"Rubric": Rubric},
    "areal": {"workflow_context": SimpleNamespace(stat_scope=lambda: "rollout")},
    "areal.workflow.rlvr": {"RLVRWorkflow": RLVRWorkflow},
    "areal.utils": {"stats_tracker": SimpleNamespace(get=lambda scope: SimpleNamespace(scalar=lambda **v: STATISTICS.append(v)))},
}  # fmt: skip
MADE = {
    "skyrl": ("RewardEnv",),
    "openenv": ("OpenEnvRubric", "Component"),
    "areal": ("RewardWorkflow",),
}
"""What the adapters keep once it was made of a base class."""


@contextmanager
def installed() -> Iterator[None]:
    """With these packages, and without them again."""
    with pytest.MonkeyPatch.context() as patch:
        for path, content in MODULES.items():
            parts = path.split(".")
            for end in range(1, len(parts) + 1):
                own = content if end == len(parts) else MODULES.get(".".join(parts[:end]), {})
                patch.setitem(
                    sys.modules, ".".join(parts[:end]), SimpleNamespace(__path__=[], **own)
                )
        try:
            yield
        finally:
            for module, names in MADE.items():
                for name in names:
                    vars(importlib.import_module(f"rm_gallery.integrations.{module}")).pop(
                        name, None
                    )
