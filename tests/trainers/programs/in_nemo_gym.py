"""NeMo-Gym's own client and models ask `/verify` as its simple agent does, and read what we reply."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import urlsplit

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseServerConfig
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from omegaconf import OmegaConf
from pydantic import ConfigDict


class Request(BaseVerifyRequest):  # type: ignore[misc]  # the base class is NeMo-Gym's, which is not installed here
    model_config = ConfigDict(extra="allow")


class Reply(BaseVerifyResponse):  # type: ignore[misc]
    model_config = ConfigDict(extra="allow")


async def main(asked: dict[str, Any]) -> dict[str, Any]:
    there = urlsplit(asked["url"])
    place = {"host": there.hostname, "port": there.port, "entrypoint": "app.py"}
    servers = {"ours": {"resources_servers": {"rm_gallery": place}}}
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create(servers),
    )

    async def post(path: str, body: Any) -> Any:
        reply = await client.post(server_name="ours", url_path=path, json=body)
        await raise_for_status(reply)
        return await get_response_json(reply)

    found = []
    for row in asked["rows"]:
        await post("/seed_session", {k: v for k, v in row.items() if k != "response"})
        request = Request.model_validate(row)
        reply = Reply.model_validate(await post("/verify", request.model_dump()))
        assert reply.response.model_dump() == request.response.model_dump()
        found.append(reply.model_dump())
    kept = [{k: v for k, v in row.items() if k not in ("response",)} for row in found]
    figures = await post("/aggregate_metrics", AggregateMetricsRequest(verify_responses=kept))
    mode = await client.get(server_name="ours", url_path="/reverify_mode")
    return {
        "rewards": [row["reward"] for row in found],
        "masked": [row["mask_sample"] for row in found],
        "classes": [row.get("_ng_failure_class") for row in found],
        "key": AggregateMetrics.model_validate(figures).key_metrics,
        "mode": ReverifyMode(await get_response_json(mode)).value,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(asyncio.run(main(json.load(sys.stdin)))))
