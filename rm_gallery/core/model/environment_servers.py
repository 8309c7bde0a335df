"""Environments of others behind a server, over the one call path: NeMo-Gym's resources servers and
the Open Reward Standard (ORS).

Written against NeMo-Gym 0.7 and openreward 0.1.167.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import quote

import orjson

from rm_gallery.core.model.reward_servers import PATIENCE_SECONDS, RewardServer, asked_once
from rm_gallery.core.model.transport import decoded
from rm_gallery.core.score import CAUSES, Score, failed, scored, unscored
from rm_gallery.core.utils.errors import (
    Cause,
    ConfigError,
    ProviderError,
    RequestError,
    ScoreError,
)
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.core.utils.shown import one_line

CLOSE_SECONDS = 2.0
"""How long an answer waits for its session to be closed; closing goes on without it."""
_REFUSED = (400, 413, 422)
"""Statuses by which a server says that this row does not fit, and no other one suffers."""


class _EnvironmentServer(RewardServer):
    """An environment's server: how its numbers are read and its refusals told."""

    hints: ClassVar[Mapping[int, str]] = {401: "give its token as api_key"}

    async def told(
        self, path: str, body: Any, timeout: float | None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """What a POST gives; RequestError where the server refuses this row."""
        try:
            return await self.content(path, timeout, headers=headers, body=_json_of(body))
        except ProviderError as error:
            if error.status not in _REFUSED:
                raise
            raise RequestError(f"The environment refuses this row: {error}") from error

    def value_of(self, reward: Any, components: Any, found: Any) -> Score[float]:
        """A reward and its components; ProviderError where it is no number."""
        if not _is_number(reward):
            shown = one_line(str(found)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of an "
                f"environment: {shown}",
                kind="fatal",
            )
        if not math.isfinite(reward):
            raise ScoreError(f"{self.endpoint_key()} gave {reward}, which is no score.")
        parts = components.items() if isinstance(components, Mapping) else ()
        known = {str(k): float(v) for k, v in parts if _is_number(v) and math.isfinite(v)}
        return scored(float(reward), "", known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_of(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise RequestError(f"The request cannot be written as JSON: {error}.") from error


class NemoGymServer(_EnvironmentServer):
    """A resources server of NeMo-Gym: one `/verify` per item, which is the body it is sent."""

    key_variable: ClassVar[str] = ""

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to /verify; ConfigError where the server says that it cannot verify a rollout it
        did not see.
        """
        if await asked_once(self, "reverify", self._mode) == "unsupported":
            raise ConfigError(
                f"{self.endpoint_key()} verifies no recorded rollout: its /reverify_mode says so. "
                f"Its reward exists only while a rollout goes on."
            )
        [item] = payload["items"]
        content = await self.told("/verify", {**item, **self.extra_body}, timeout)
        try:
            return {"reply": decoded(content)}
        except ValueError as error:
            raise ProviderError(
                f"{self.endpoint_key()} answered with a body that is not JSON.", kind="transient"
            ) from error

    async def _mode(self) -> str:
        try:
            return str(await self.request("/reverify_mode", None, PATIENCE_SECONDS))
        except ProviderError as error:
            # an earlier version has no such path; one that is down is asked again
            if error.status is None and "not JSON" not in str(error):
                raise
            return "unknown"

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> list[Score[float]]:
        """The verdict. A row that is masked, or labelled as one whose judge failed, has no score."""
        found = raw["reply"]
        reply = found if isinstance(found, dict) else {}
        failure = reply.get("_ng_failure_class")
        if reply.get("mask_sample") is True or failure:
            kind = reply.get("failure_kind")
            told = (
                failure,
                kind,
                reply.get("failure_reason"),
                reply.get("_ng_failure_judge_error"),
            )
            why = one_line(": ".join(str(each) for each in told if each)[:4000], 600)
            cause: Cause = kind if kind in CAUSES else "judge" if failure else "rule"
            return [
                unscored("masked", f"The environment gives no reward here. {why}".strip(), cause)
            ]
        return [self.value_of(reply.get("reward"), reply.get("reward_components"), found)]


class OrsServer(_EnvironmentServer):
    """A server of ORS environments: one session per item, in which the answer is submitted once.

    An item has `answer`, and names its task by `split` and `index`, by `task_spec`, or by `id`.
    """

    key_variable: ClassVar[str] = "OPENREWARD_API_KEY"

    env: str = ""
    """The environment; empty where the server has one."""
    tool: str = ""
    """The tool that takes the answer; empty for the terminal tool, else the only one."""
    argument: str = ""
    """What the tool calls the answer; empty for its only field."""

    async def ascore(self, items: Sequence[dict[str, Any]]) -> list[Score[float]]:
        """As of every server; another tool's answers are another question to the cache."""
        own = [self.env, self.tool, self.argument]
        return await super().ascore([{**item, "answered_by": own} for item in items])

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One session, from its begin to its end."""
        [item] = payload["items"]
        end = math.inf if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if timeout is None else max(0.001, end - time.monotonic())

        env = self.env or await asked_once(self, "environment", self._only_environment)
        tool, argument = await asked_once(
            self, f"tool {env}/{self.tool}/{self.argument}", lambda: self._answering(env)
        )
        task = await self._task(env, item)
        if task is None:
            return {"missing": f"{env} has no task of the id {item['id']!r:.80}."}
        # where a server hands out sessions it does so without a word about the task
        sid = self._session_id(await self.told("/create_session", {}, left()))
        headers = {"X-Session-ID": sid}
        try:
            await self.told("/create", {"env_name": env, **task}, left(), headers)
            given = {argument: item["answer"]} if argument else {}
            call = {"name": tool, "input": given}
            return {
                "events": _events(await self.told(f"/{quote(env)}/call", call, left(), headers))
            }
        finally:
            closing = asyncio.ensure_future(self._close(headers))
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)

    async def _close(self, headers: Mapping[str, str]) -> None:
        for path in ("/delete", "/delete_session"):
            with suppress(ProviderError):  # it ends by itself as well
                await self.content(path, PATIENCE_SECONDS, headers=headers, body=b"{}")

    async def _only_environment(self) -> str:
        names = await self.request("/list_environments", None, PATIENCE_SECONDS)
        if not isinstance(names, list) or len(names) != 1:
            there = ", ".join(map(str, names[:10])) if isinstance(names, list) else "?"
            raise ConfigError(
                f"{self.endpoint_key()} has the environments {there}; name one in the URL, behind "
                f"a slash."
            )
        return str(names[0])

    async def _answering(self, env: str) -> tuple[str, str]:
        """The tool that takes the answer, and the name of its argument; empty for none."""
        found = await self.request(f"/{quote(env)}/tools", None, PATIENCE_SECONDS)
        listed = found.get("tools") if isinstance(found, dict) else None
        fields = {
            str(each.get("name")): list((each.get("input_schema") or {}).get("properties") or ())
            for each in listed or ()
        }
        terminal = found.get("terminal_tool") if isinstance(found, dict) else None
        if isinstance(terminal, dict):
            fields[str(terminal.get("name"))] = [terminal["arg"]] if terminal.get("arg") else []
        ends = str(terminal["name"]) if isinstance(terminal, dict) else ""
        tool = self.tool or ends or (next(iter(fields)) if len(fields) == 1 else "")
        if tool not in fields:
            wrong = unknown_name("tool", tool, fields) if tool else f"tools: {', '.join(fields)}"
            raise ConfigError(
                f"{self.endpoint_key()}: {env}: {wrong}; say with tool= which takes the answer."
            )
        own = fields[tool]
        if self.argument or len(own) < 2:
            return tool, self.argument or "".join(map(str, own))
        raise ConfigError(
            f"{self.endpoint_key()}: {env}: {tool} takes {', '.join(map(str, own))}; say with "
            f"argument= which is the answer."
        )

    async def _task(self, env: str, item: Mapping[str, Any]) -> dict[str, Any] | None:
        """How a session is told its task."""
        if "task_spec" in item:
            return {"task_spec": item["task_spec"]}
        if "index" in item:
            split = item.get("split") or await self._only_split(env)
            return {"split": split, "index": item["index"]}
        specs = await asked_once(self, f"tasks {env}", lambda: self._specs(env))
        spec = specs.get(str(item["id"]))
        return None if spec is None else {"task_spec": spec}

    async def _splits(self, env: str) -> list[str]:
        found = await self.request(f"/{quote(env)}/splits", None, PATIENCE_SECONDS)
        return [str(each["name"]) for each in found if isinstance(each, dict) and "name" in each]

    async def _only_split(self, env: str) -> str:
        names = await asked_once(self, f"splits {env}", lambda: self._splits(env))
        if len(names) == 1:
            return str(names[0])
        raise ConfigError(
            f"{self.endpoint_key()}: {env} has the splits {', '.join(names)}; name one with split=, "
            f"or in a column split."
        )

    async def _specs(self, env: str) -> dict[str, Any]:
        """The tasks by their ids."""
        known: dict[str, Any] = {}
        for split in await self._splits(env):
            reply = await self.post(f"/{quote(env)}/tasks", {"split": split}, self.timeout)
            for spec in reply.get("tasks") or ():
                if isinstance(spec, dict) and "id" in spec:
                    known.setdefault(str(spec["id"]), spec)
        return known

    def _session_id(self, content: bytes) -> str:
        events = _events(content)
        told = _joined(events) or next((data for name, data in events if name == "task_id"), "")
        with suppress(ValueError):
            parsed = decoded(told.encode())
            told = str(parsed["sid"]) if isinstance(parsed, dict) and "sid" in parsed else told
        if not told.strip():
            raise ProviderError(f"{self.endpoint_key()} gave no session.", kind="transient")
        return told.strip()

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> list[Score[float]]:
        """What the tool's outcome says; a reward that is null is no score."""
        if "missing" in raw:
            return [unscored("no_task", raw["missing"], "data")]
        events = raw["events"]
        error = next((data for name, data in events if name == "error"), None)
        if error is not None:
            return [failed("error", f"The environment failed: {one_line(error, 600)}", "rule")]
        try:
            found = decoded(_joined(events).encode())
        except ValueError:
            raise ProviderError(
                f"{self.endpoint_key()} broke off its answer to a call.", kind="transient"
            ) from None
        reply = found if isinstance(found, dict) else {}
        if reply.get("ok") is False:
            why = one_line(f"{reply.get('reason')}: {reply.get('error')}", 600)
            return [failed("refused", f"The environment's tool refuses the answer: {why}", "rule")]
        output = reply.get("output")
        if not isinstance(output, dict) or "reward" not in output:
            return [self.value_of(None, None, found)]
        told = output.get("metadata")
        about: dict[str, Any] = told if isinstance(told, dict) else {}
        if output["reward"] is None:
            cause: Cause = about["cause"] if about.get("cause") in CAUSES else "rule"
            why = one_line(str(about.get("message") or ""), 600)
            return [
                unscored("no_reward", f"The environment gives no reward here. {why}".strip(), cause)
            ]
        return [self.value_of(output["reward"], about.get("components"), found)]

    def _headers(self, endpoint: Any, key: str | None) -> dict[str, str]:
        return {**super()._headers(endpoint, key), **self.key_header("X-API-Key")}


_closing: set[asyncio.Future[None]] = set()


def _events(content: bytes) -> list[tuple[str, str]]:
    """The events of a stream, each with its name and its data."""
    events: list[tuple[str, str]] = []
    name, data = "message", list[str]()
    for line in [*re.split("\r\n|\n|\r", content.decode("utf-8", "replace")), ""]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not line and data:
            events.append((name, "\n".join(data)))
            name, data = "message", []
    return events


def _joined(events: list[tuple[str, str]]) -> str:
    """The text of an answer that came to its end; empty for one that broke off."""
    if not any(name == "end" for name, _ in events):
        return ""
    return "".join(data for name, data in events if name in ("chunk", "end"))
