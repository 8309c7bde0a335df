"""Asking an application without a server: one request or many at once, and what a reply or a
refusal says.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from rm_gallery import BasePointWiseReward, DataSample, RewardResult
from tests.reward.rewards import scored


class Slow(BasePointWiseReward):
    """Takes as many seconds as an answer says."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await asyncio.sleep(float(sample.output[0].answer.text))
        return scored(self.name, 1.0)


def asked(app: Any, *requests: dict[str, Any]) -> list[httpx.Response]:
    """The replies to requests that come at once: `url`, and what else `httpx` takes."""

    async def go() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            given = [{"method": "POST", **request} for request in requests]
            return list(await asyncio.gather(*(client.request(**one) for one in given)))

    return asyncio.run(go())


def post(app: Any, url: str, body: Any, **more: Any) -> httpx.Response:
    """The reply to one body."""
    return asked(app, {"url": url, "content": json.dumps(body), **more})[0]


def get(url: str, **more: Any) -> dict[str, Any]:
    """A request that reads."""
    return {"method": "GET", "url": url, **more}


def code_of(reply: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, whose shape is looked at too."""
    error = reply.json()["error"]
    assert error.keys() == {"code", "message", "request_id"}
    assert error["request_id"] == reply.headers["x-request-id"] and error["message"]
    return reply.status_code, error["code"]
