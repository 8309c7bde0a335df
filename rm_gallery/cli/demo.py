"""`rm-gallery demo`: the main job on data that comes with the project, without any key."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.rewardbench2 import RewardBench2, split_folder
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.tables import print_comparison
from rm_gallery.report.task import open_data

JUDGED = "safety_listwise_reward"


def demo(
    llm: Annotated[str | None, typer.Option(help="Also judge with this model.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Endpoint of the judge.")] = None,
    max_workers: Annotated[int, typer.Option(min=1, help="Judgements in flight at once.")] = 32,
) -> None:
    """Train the embedded model on the training split, score the test split with it and others, print one table."""
    from rm_gallery.train.bradley_terry.fit import train_bradley_terry

    if base_url and not llm:
        raise ConfigError("--base-url needs a model; name it with --llm MODEL.")
    folder, name = split_folder(), RewardBench2.name
    train = list(open_data(folder / "train.parquet", name).rows())
    test = str(folder / "test.parquet")
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "bt"
        sys.stderr.write(f"training the embedded Bradley–Terry model on {len(train)} samples …\n")
        train_bradley_terry(train, out)
        rewards: dict[str, BaseReward] = {
            "embedded Bradley–Terry": RewardRegistry.create(f"bt:{out}"),
            "length_baseline": RewardRegistry.create("length_baseline"),
            "length_baseline (shortest)": RewardRegistry.create("length_baseline", shortest=True),
            "length_penalty": RewardRegistry.create("length_penalty"),
        }
        if llm:
            rewards[JUDGED] = build_reward(JUDGED, llm=llm, base_url=base_url)
        reports = {}
        for label, reward in rewards.items():
            sys.stderr.write(f"scoring the test split with {label} …\n")
            reports[label] = evaluate(reward, test, name, max_workers=max_workers, progress=None if llm else False)
    any_report = reports["length_baseline"]
    judge = next((f"judge {report.judge} at {report.endpoint}" for report in reports.values() if report.judge), "no judge")
    notes = [
        f"benchmark: {name} ({any_report.version}) · data: {test} · n={any_report.n} · {judge}",
        "chance is 25 % on the best-of-4 subsets",
    ]
    print_comparison(reports, notes)
