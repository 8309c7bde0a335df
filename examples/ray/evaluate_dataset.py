"""Judge a data set with a reward on the Ray cluster this runs on.

python evaluate_dataset.py REWARD DATA OUT [--llm NAME] [--address HOST:PORT] [--max-cost AMOUNT]
"""

from __future__ import annotations

import argparse

from rm_gallery import Budget
from rm_gallery.study.ray_data import evaluate_dataset


def main() -> None:
    """Judge, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reward")
    parser.add_argument("data", help="parquet, json lines or csv that every node sees, or a URL")
    parser.add_argument("out", help="folder that every node sees, or a URL")
    parser.add_argument("--llm")
    parser.add_argument("--address")
    parser.add_argument("--max-cost", type=float)
    parser.add_argument(
        "--max-workers", type=int, default=256, help="calls in flight, of all nodes together"
    )
    given = parser.parse_args()
    budget = None if given.max_cost is None else Budget(max_cost=given.max_cost)
    report, scored = evaluate_dataset(
        given.reward,
        given.data,
        out=given.out,
        llm=given.llm,
        address=given.address,
        budget=budget,
        max_workers=given.max_workers,
    )
    print(report)
    print(scored.groupby("rm_status").count().to_pandas())


if __name__ == "__main__":
    main()
