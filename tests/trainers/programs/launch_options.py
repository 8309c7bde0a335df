"""Which of the options on stdin a trainer's package knows, by its files: nothing is imported, for
its launchers want GPUs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from importlib import metadata
from pathlib import Path


def file_of(package: str, name: str) -> str:
    """The text of a package's file."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / name).read_text(encoding="utf-8")


def in_verl(option: str) -> bool:
    """A dotted key of the whole configuration that verl writes out."""
    import yaml

    here = yaml.safe_load(file_of("verl", "trainer/config/_generated_ppo_trainer.yaml"))
    for name in option.split("."):
        if not isinstance(here, dict) or name not in here:
            return False
        here = here[name]
    return True


def in_openrlhf(option: str) -> bool:
    """An argument that the launcher's parser is given."""
    return f'"{option}"' in file_of("openrlhf", "cli/train_ppo_ray.py")


def in_areal(option: str) -> bool:
    """Each name of the dotted key is a field of some class of AReaL's configuration."""
    text = file_of("areal", "api/cli_args.py")
    return option == "--config" or all(
        re.search(rf"^    {name}: ", text, re.MULTILINE) for name in option.split(".")
    )


def in_verifiers(option: str) -> bool:
    """A command that the package installs, or a switch of its configuration."""
    scripts = metadata.distribution("verifiers").entry_points.select(group="console_scripts")
    field = option.removeprefix("--no-").removeprefix("--").replace("-", "_")
    text = file_of("verifiers", "v1/configs/cli/eval.py")
    return option in scripts.names or bool(re.search(rf"^    {field}: ", text, re.MULTILINE))


asked = json.loads(sys.stdin.read())
known = globals()[f"in_{asked['trainer']}"]
sys.stdout.write(json.dumps([option for option in asked["options"] if not known(option)]) + "\n")
