"""Serve a reward on Ray Serve: replicas of the server's application behind one address.

    serve run serve_reward:app reward=length_baseline replicas=2
    curl localhost:8000/v1/rewards/length_baseline -d '{"prompt": "2+2?", "completion": "4"}'

Limits and rates are each replica's own.
"""

from __future__ import annotations

from typing import Any

from ray import serve

from rm_gallery import RewardRegistry
from rm_gallery.serve.app import create_app
from rm_gallery.serve.handler import Handler


def app(args: dict[str, str]) -> serve.Application:
    """What `serve run` deploys; its arguments are `reward` and `replicas`."""

    def application() -> Any:
        """What a replica runs."""
        return create_app(Handler({args["reward"]: RewardRegistry.create(args["reward"])}))

    @serve.deployment(num_replicas=int(args.get("replicas", "1")), max_ongoing_requests=256)
    @serve.ingress(application)
    class Reward:
        """A reward behind the library's own HTTP formats."""

    deployed: serve.Application = Reward.bind()  # type: ignore[attr-defined]  # the decorator's
    return deployed
