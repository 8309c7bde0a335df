"""Environments of others behind a server, over the one call path: NeMo-Gym's resources servers and
the Open Reward Standard (ORS).

Written against NeMo-Gym 0.7 and openreward 0.1.167.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import quote

from rm_gallery.core.model.openai import (
    NUMBERS,
    Access,
    merged_headers,
    object_of,
    sent_events,
    value_at,
)
from rm_gallery.core.model.reward_servers import PATIENCE_SECONDS, RewardServer, Scores, _asked
from rm_gallery.core.model.transport import Headers, Json, Seconds, decoded
from rm_gallery.core.score import CAUSES, failed, scored, unscored
from rm_gallery.core.utils.errors import (
    Cause,
    ConfigError,
    ProviderError,
    RequestError,
    Unscored,
)
from rm_gallery.core.utils.shown import one_line

Events: TypeAlias = list[tuple[str, str]]
CLOSE_SECONDS = 2.0
"""How long an answer waits for its session to be closed; closing goes on without it."""
_REFUSED = (400, 413, 422)
"""Statuses by which a server says that this row does not fit, and no other one suffers."""
_FAILURE = ("_ng_failure_class", "failure_kind", "failure_reason", "_ng_failure_judge_error")


async def _of_this_row(asking: Awaitable[Any]) -> Any:
    """What is answered; RequestError where the server refuses this row."""
    try:
        return await asking
    except ProviderError as error:
        if error.status not in _REFUSED:
            raise
        raise RequestError(f"The environment refuses this row: {error}") from error


def _no_reward(code: str, why: Any, cause: Any, otherwise: Cause) -> Scores:
    message = f"The environment gives no reward here. {one_line(str(why or ''), 600)}"
    return [unscored(code, message.strip(), cause if cause in CAUSES else otherwise)]


class _EnvironmentServer(RewardServer):
    """An environment's server and how its numbers are read."""

    hints = {401: "give its token as api_key"}

    def score_of(self, outcome: Any, reward: str, components: str) -> Scores:
        """A reward and its components, which stand there; ProviderError where it is no number."""
        with self.layout_of("an environment", outcome):
            value = self.number(value_at(outcome, reward))
            finite = {
                name: float(part)
                for name, part in object_of(value_at(outcome, components)).items()
                if type(part) in NUMBERS and math.isfinite(part)
            }
        return [scored(value, "", finite)]


class NemoGymServer(_EnvironmentServer):
    """A resources server of NeMo-Gym: one `/verify` per item, which is the body it is sent."""

    key_variable = ""

    async def attempt(self, payload: Json, timeout: Seconds) -> Any:
        """One POST to /verify; ConfigError where the server says that it cannot verify a rollout it
        did not see.
        """
        # an earlier version has no such path
        path = "/reverify_mode"
        if await self.once(path, self.said, path, PATIENCE_SECONDS) == "unsupported":
            raise ConfigError(
                f"{self.endpoint_key()} verifies no recorded rollout: its /reverify_mode says so. "
                f"Its reward exists only while a rollout goes on."
            )
        [item] = payload["items"]
        return await _of_this_row(self.request("/verify", {**item, **self.extra_body}, timeout))

    def read(self, raw: Any, payload: Json) -> Scores:
        """The verdict. A row that is masked, or labelled as one whose judge failed, has no score."""
        failure, kind, *_ = labels = [value_at(raw, name) for name in _FAILURE]
        if value_at(raw, "mask_sample") is True or failure:
            why = ": ".join(str(label) for label in labels if label)
            return _no_reward("masked", why, kind, "judge" if failure else "rule")
        return self.score_of(raw, "reward", "reward_components")


class OrsServer(_EnvironmentServer):
    """A server of ORS environments: one session per item, in which the answer is submitted once.

    An item has `answer`, and names its task by `split` and `index`, by `task_spec`, or by `id`.
    """

    key_variable = "OPENREWARD_API_KEY"

    env: str = ""
    """The environment; empty where the server has one."""
    tool: str = ""
    """The tool that takes the answer; empty for the terminal tool, else the only one."""
    argument: str = ""
    """What the tool calls the answer; empty for its only field."""

    async def ascore(self, items: Sequence[Json]) -> Scores:
        """As of every server; another tool's answers are another question to the cache. Unscored
        where the server has no task of an item's id.
        """
        taker = {"answered_by": [self.env, self.tool, self.argument]}
        return await super().ascore([{**item, **taker} for item in items])

    async def attempt(self, payload: Json, timeout: Seconds) -> Any:
        """One session, from its begin to its end: what the answer's call gave."""
        [item] = payload["items"]
        end = time.monotonic() + (timeout or self.timeout)
        session: dict[str, str] = {}

        async def tell(path: str, body: Json) -> Events:
            left = max(0.001, end - time.monotonic())
            asking = self.content(path, left, headers=session, payload=body)
            return [
                (name.decode("utf-8", "replace"), data.decode("utf-8", "replace"))
                for name, data in sent_events(await _of_this_row(asking))
            ]

        env = self.env or self._chosen(
            await self._kept_list("/list_environments"),
            " has the environments",
            "name one in the URL, behind a slash",
        )
        place = f"/{quote(env)}"
        tool, argument = self._answering(place, await self._kept_list(f"{place}/tools"))
        task = await self._task(place, item)
        # where a server hands out sessions it does so without a word about the task
        created = await tell("/create_session", {})
        with self.layout_of("a new session", created, "transient"):
            answer = _joined(created) or dict(created)["task_id"]
            with suppress(ValueError):
                answer = str(value_at(decoded(answer.encode()), "sid", answer))
            [session["X-Session-ID"]] = answer.split()
        try:
            await tell("/create", {"env_name": env, **task})
            arguments = {argument: item["answer"]} if argument else {}
            return await tell(f"{place}/call", {"name": tool, "input": arguments})
        finally:
            # its request, which has a timeout, keeps it alive
            await asyncio.wait({asyncio.ensure_future(self._close(session))}, timeout=CLOSE_SECONDS)

    async def _close(self, session: Mapping[str, str]) -> None:
        for path in ("/delete", "/delete_session"):
            with suppress(ProviderError):  # it ends by itself as well
                await self.content(path, PATIENCE_SECONDS, headers=session, payload={})

    async def _kept_list(self, path: str) -> Any:
        return await self.once(path, self.request, path, None, PATIENCE_SECONDS)

    def _chosen(self, names: Any, what: str, advice: str, given: str = "") -> str:
        """The given one of several names, else the only one; ConfigError where that is none."""
        known = [str(name) for name in names] if isinstance(names, list) else []
        if given in known or (not given and len(known) == 1):
            return given or known[0]
        _asked.clear()  # what is mended there counts
        raise ConfigError(f"{self.endpoint_key()}{what}: {', '.join(known[:10])}; {advice}.")

    def _answering(self, place: str, listed: Any) -> tuple[str, str]:
        """The tool that takes the answer, and the name of its argument; empty for none."""
        fields = {
            value_at(each, "name"): list(value_at(each, "input_schema properties") or [""])
            for each in value_at(listed, "tools") or ()
        }
        if terminal := value_at(listed, "terminal_tool name", ""):
            fields[terminal] = [value_at(listed, "terminal_tool arg") or ""]
        tool = self._chosen(
            list(fields),
            f"{place} has the tools",
            f"tool= is {self.tool!r}; say with tool= which takes the answer",
            self.tool or terminal,
        )
        return tool, self.argument or self._chosen(
            fields[tool], f"{place}: {tool} takes", "say with argument= which is the answer"
        )

    async def _task(self, place: str, item: Json) -> Json:
        """How a session is told its task."""
        if "task_spec" in item:
            return {"task_spec": item["task_spec"]}
        if "index" in item:
            split = item.get("split") or self._chosen(
                await self._splits(place),
                f"{place} has the splits",
                "name one with split=, or in a column split",
            )
            return {"split": split, "index": item["index"]}
        specs = await self.once(f"{place}/tasks", self._specs, place)
        if (spec := specs.get(item["id"])) is None:
            why = f"{place[1:]} has no task of the id {item['id']!r:.80}."
            raise Unscored(why, reason="no_task", cause="data")
        return {"task_spec": spec}

    async def _splits(self, place: str) -> list[str]:
        return [value_at(each, "name") for each in await self._kept_list(f"{place}/splits")]

    async def _specs(self, place: str) -> Json:
        """The tasks by their ids; of equal ones the first."""
        known: Json = {}
        for split in await self._splits(place):
            reply = await self.post(f"{place}/tasks", {"split": split}, self.timeout)
            for spec in reply.get("tasks") or ():
                known.setdefault(str(value_at(spec, "id")), spec)
        return known

    def read(self, raw: Any, payload: Json) -> Scores:
        """What the tool's outcome says; a reward that is null is no score."""
        if (error := dict(raw).get("error")) is not None:
            return [failed("error", f"The environment failed: {one_line(error, 600)}", "rule")]
        with self.layout_of("a call that ended", raw, "transient"):
            outcome = decoded(_joined(raw).encode())
        if value_at(outcome, "ok") is False:
            why = one_line(f"{value_at(outcome, 'reason')}: {value_at(outcome, 'error')}", 600)
            return [failed("refused", f"The environment's tool refuses the answer: {why}", "rule")]
        if value_at(outcome, "output reward", "") is None:
            metadata = object_of(value_at(outcome, "output metadata"))
            return _no_reward("no_reward", metadata.get("message"), metadata.get("cause"), "rule")
        return self.score_of(outcome, "output reward", "output metadata components")

    def headers(self, access: Access) -> Headers:
        """As for every server, with the key under its name as well."""
        return merged_headers(super().headers(access), self.key_header("X-API-Key"))


def _joined(events: Events) -> str:
    """The text of an answer that came to its end; empty for one that broke off."""
    parts = [data for name, data in events if name in ("chunk", "end")]
    return "".join(parts) if "end" in dict(events) else ""
