"""A server of rewards (`rm-gallery serve`) over the one call path: retries, limits, outages and deadlines as for every model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import orjson
from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.budget import Usage
from rm_gallery.core.model import transport
from rm_gallery.core.model.openai_llm import OpenaiEndpoint
from rm_gallery.core.model.transport import one_line
from rm_gallery.core.outcome import CAUSES, Outcome, scored
from rm_gallery.core.utils.errors import Cause, ConfigError, DeadlineExceeded, ProviderError

TOKEN_VARIABLE = "RM_GALLERY_TOKEN"
"""Environment variable with the bearer token of reward servers."""
_KINDS = {"rewards": "reward", "evaluations": "evaluator"}


def split_reward_url(url: str, named: str) -> tuple[str, str]:
    """The server's base URL and the target that a reward's URL names: http://host:8000/v1/rewards/NAME or …/evaluations/ID.

    Raises ConfigError, with `named` for where the URL came from, when it names none.
    """
    base, _, rest = transport.check_url(url, named).rpartition("/v1/")
    kind, _, name = rest.partition("/")
    if not base or kind not in _KINDS or not name or "/" in name:
        raise ConfigError(
            f"{named} names no reward: found {url[:200]!r}; give http://HOST:PORT/v1/rewards/NAME, or /v1/evaluations/ID "
            "for a deployed evaluator."
        )
    return base, f"{_KINDS[kind]}:{unquote(name)}"


class RewardServer(OpenaiEndpoint):
    """One reward or evaluator of a server, which `model` names: `reward:NAME` or `evaluator:ID`.

    The token is `api_key`, else RM_GALLERY_TOKEN; a key of OpenAI is never sent. Answers are not cached unless `cache` says
    so: what stands behind a name may be deployed anew.
    """

    hints: ClassVar[Mapping[int, str]] = {401: f"check the token, or {TOKEN_VARIABLE}"}  # the server says the rest itself

    cache: bool | None = False
    max_outage: float = Field(default=30.0, ge=0)

    async def ascore(self, items: Sequence[dict[str, Any]]) -> list[Outcome[float]]:
        """What the server says of the items, which are those of its own format, in one request.

        Raises:
            ConfigError: a URL that is none. ProviderError: no usable answer, or a request that was refused.
            RequestError: an item that cannot be written as JSON. DeadlineExceeded, BudgetExceeded.
        """
        from rm_gallery.core.model.call import complete

        asked = {"target": self.model, "items": list(items), **({"extra": self.extra_body} if self.extra_body else {})}
        found: list[Outcome[float]] = await library_loop.bridge(complete(self, asked))
        return found

    async def atold(self, path: str) -> Any:
        """What a GET gives, such as the list of rewards; once, without a retry."""
        return await library_loop.bridge(self.request(path, None, self.timeout))

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST of one item or of several."""
        kind, _, name = payload["target"].partition(":")
        path = f"/v1/{'rewards' if kind == 'reward' else 'evaluations'}/{quote(name, safe='')}"
        if kind == "evaluator":
            path += "/outcome"
        items = payload["items"]
        try:
            if len(items) == 1:
                return {"results": [await self.request(path, {**items[0], **self.extra_body}, timeout)]}
            return await self.post(f"{path}/batch", {"items": items, **self.extra_body}, timeout)
        except ProviderError as error:
            if error.status != 504:
                raise
            # asked again it would take as long again
            raise DeadlineExceeded(f"{self.endpoint_key()} ran out of time: {error}") from None

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> list[Outcome[float]]:
        """The answers, one per item, with finite scores."""
        found = raw.get("results")
        try:
            if not isinstance(found, list) or len(found) != len(payload["items"]):
                raise ValueError("not one result per item")
            return [_answer(each) for each in found]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            shown = one_line(str(raw)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of a reward server: {shown}",
                kind="fatal",
            ) from error

    def kept(self, raw: dict[str, Any], reply: Any) -> bytes | None:
        """Answers that all have a score."""
        return (
            orjson.dumps([[each.value, each.message, dict(each.components)] for each in reply])
            if all(each.score is not None for each in reply)
            else None
        )

    def restored(self, stored: bytes) -> list[Outcome[float]]:
        """What was kept."""
        try:
            return [scored(*each) for each in orjson.loads(stored)]
        except TypeError as error:
            raise ValueError("no answers") from error

    def usage(self, reply: Any, expected_input: int) -> Usage:
        """One call; tokens are the server's own matter."""
        return Usage(calls=1)

    def _key(self) -> str | None:
        given = self.api_key.get_secret_value() if self.api_key is not None else ""
        return given or os.environ.get(TOKEN_VARIABLE) or None

    def _headers(self, endpoint: transport.Endpoint, key: str | None) -> dict[str, str]:
        # a little less than is waited for, so that its own word about it arrives
        told = max(0.9 * self.timeout, self.timeout - 5)
        return {"X-Timeout-Seconds": f"{told:g}", **super()._headers(endpoint, key)}


def _answer(found: Any) -> Outcome[float]:
    status, score = found["status"], found["score"]
    if status not in ("scored", "unscored", "failed") or (score is None) != (status != "scored"):
        raise ValueError("status and score do not fit")
    if score is not None and (isinstance(score, bool) or not math.isfinite(score)):
        raise ValueError("no number")
    components = {str(name): float(value) for name, value in found["components"].items()}
    if not all(map(math.isfinite, components.values())):
        raise ValueError("a component that is no number")
    cause = found.get("cause")
    value = None if score is None else float(score)
    # a server of an earlier version says nothing of it: then it is the endpoint that knows, and did not tell
    known: Cause | None = None if score is not None else cause if cause in CAUSES else "endpoint"
    return Outcome(status, value, str(found["reason"]), str(found["message"]), known, components)
