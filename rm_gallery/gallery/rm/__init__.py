"""Ready-made rewards by family. A rule is one file below this folder, a judged scenario one YAML
file in alignment/scenarios.
"""

from __future__ import annotations

import re
from pathlib import Path

from rm_gallery.core.reward.registry import rule_class_name

_REGISTERED = re.compile(
    r'^((?:@RewardRegistry\.register\("[^"]+"\)\n)+)(?:@.*\n)*class (\w+)', re.MULTILINE
)
_RULE = re.compile(r'^@rule\(\s*"([^"]+)"', re.MULTILINE)
_NAME = re.compile(r'"([^"]+)"')
KINDS = {"listwise": "ListWise", "pointwise": "PointWise", "pairwise": "PairWise"}
JUDGED_MODULE = f"{__name__}.alignment.base"


def discover() -> dict[str, str]:
    """Every gallery reward as registered name -> "module:Class", found without importing any of
    them.

    Rules are the functions below `@rule("name", …)` and the classes below
    `@RewardRegistry.register("name")`, judged rewards the scenarios' file names.
    """
    here = Path(__file__).parent
    targets = {}
    for path in sorted(here.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        parts = (__name__, *path.relative_to(here).with_suffix("").parts)
        module = ".".join(parts).removesuffix(".__init__")
        for names, class_name in _REGISTERED.findall(source):
            targets.update(dict.fromkeys(_NAME.findall(names), f"{module}:{class_name}"))
        for name in _RULE.findall(source):
            targets[name] = f"{module}:{rule_class_name(name)}"
    for key in scenario_keys():
        for kind in KINDS:
            targets[judged_name(key, kind)] = f"{JUDGED_MODULE}:{judged_class_name(key, kind)}"
    return targets


def scenario_keys() -> list[str]:
    """The keys of the judged scenarios: the names of their files."""
    return sorted(
        path.stem for path in (Path(__file__).parent / "alignment" / "scenarios").glob("*.yaml")
    )


def judged_name(key: str, kind: str) -> str:
    """The registered name of a scenario in one of the three kinds; the general scenarios (`base_…`)
    have no ending `_reward`.
    """
    return f"{key}_{kind}" if key.startswith("base_") else f"{key}_{kind}_reward"


def judged_class_name(key: str, kind: str) -> str:
    """The class that judges a scenario in one of the three kinds: closed_qa, listwise ->
    ClosedQAListWiseReward.
    """
    words = [word.upper() if len(word) <= 2 else word.capitalize() for word in key.split("_")]
    return f"{''.join(words)}{KINDS[kind]}Reward"
