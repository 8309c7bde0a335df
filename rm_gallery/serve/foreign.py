"""What a client may send: content. A file, a program, a host or a template is named by the server's
own configuration alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rm_gallery.core.model.message import TEXT_PARTS
from rm_gallery.core.model.transport import Json
from rm_gallery.core.reward.job import PICTURES, Touches
from rm_gallery.serve.formats import Ask, Refused

_URLS = ("url", "image_url", "image")
"""Keys of a picture that hold where it is fetched from."""


class Allowed(NamedTuple):
    """What clients may name to one served reward, as the server's configuration says."""

    root: str | None = None
    """Folder below which workspaces and pictures may lie; None for none."""
    hosts: frozenset[str] = frozenset()
    """Hosts that pictures may be fetched from."""


def content_only(ask: Ask, touches: Touches, allowed: Allowed, where: str = "") -> Ask:
    """The ask with paths below the allowed root made whole; Refused (422) where it names anything
    else of the machine that the reward touches.

    A client's word for a path, a command or a URL made a reward read `/etc`, `/proc/self/environ`
    and services of the loopback for it.
    """
    if not any(touches.values()):
        return ask
    rule = _Content(touches, allowed)
    # a grader is handed the reference by name as it is the columns
    given = {"row": ask.row, "reference": ask.reference}
    turns = ("messages", "original_messages", "prompt", "completion")
    try:
        made = {name: rule.column(value, name) for name, value in given.items()}
        made |= {name: rule.turns(getattr(ask, name), name) for name in turns}
    except _Named as named:
        raise Refused(422, "not_content", f"{where}{named}") from None
    return ask._replace(**made)


class _Named(Exception):
    """A field names something of the machine; which, and what to do."""


class _Content:
    def __init__(self, touches: Touches, allowed: Allowed) -> None:
        self._allowed = allowed
        self._folders = {name for name in touches.get("files", ()) if name != PICTURES}
        others = (names for kind, names in touches.items() if kind != "files")
        self._orders = {name for names in others for name in names if name != PICTURES}
        self._path = PICTURES in touches.get("files", ())
        self._url = PICTURES in touches.get("network", ())

    def column(self, value: Any, where: str) -> Any:
        """A column of the row, and all that is in it: graders take fields out of nested ones."""
        if isinstance(value, list):
            return [self.column(each, f"{where}[{place}]") for place, each in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        made: Json = {}
        for key, inner in value.items():
            place = f"{where}.{key}"
            if inner is not None and key in self._orders:
                raise _Named(
                    f"{place:.80} says what is run or asked; a client cannot: set {key!r} in the "
                    "settings of the served reward (params)."
                )
            if inner is not None and key in self._folders:
                made[key] = self._folder(inner, place)
            else:
                made[key] = self.column(inner, place)
        return self._picture(made, where) if self._path else made

    def turns(self, value: Any, where: str) -> Any:
        """Messages: their parts may be pictures."""
        if not isinstance(value, list):
            return value
        return [
            {**turn, "content": self._parts(turn["content"], f"{where}[{place}].content")}
            if isinstance(turn, Mapping) and isinstance(turn.get("content"), list)
            else turn
            for place, turn in enumerate(value)
        ]

    def _parts(self, value: Any, where: str) -> Any:
        if isinstance(value, list):
            return [self._parts(each, f"{where}[{place}]") for place, each in enumerate(value)]
        if not isinstance(value, Mapping) or value.get("type") in TEXT_PARTS[:-1]:
            return value
        made = {key: self._parts(inner, f"{where}.{key}") for key, inner in value.items()}
        return self._picture(made, where)

    def _picture(self, value: Json, where: str) -> Json:
        if self._path and value.get("path") is not None:
            value["path"] = self._below(
                value["path"], f"{where}.path", "a picture is a data: URL or base64"
            )
        for key in _URLS if self._url else ():
            url = value.get(key)
            if isinstance(url, str) and not (_is_data(url) or self._may_fetch(url)):
                raise _Named(
                    f"{where}.{key:.40} names a place where a picture is fetched; send a data: URL, or "
                    "have its host named in `hosts` of the served reward."
                )
        return value

    def _folder(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            return value
        return self._below(value, where, "it is a mapping of path to text")

    def _below(self, value: Any, where: str, instead: str) -> str:
        """A path made whole; whether something is there is not told."""
        root = self._allowed.root
        if isinstance(value, str) and root is not None:
            top = os.path.realpath(root)
            try:
                path = os.path.realpath(os.path.join(top, value))
            except ValueError:  # no path at all
                path = ""
            if path.startswith(os.path.join(top, "")):
                return path
        raise _Named(
            f"{where:.80} names a file of the server: {instead}, or lies below the folder that "
            "`root` of the served reward names."
        )

    def _may_fetch(self, url: str) -> bool:
        # readers of URLs differ in what they make of a backslash, a space or a user's name
        if not url.isprintable() or set(url) & set("\\ @"):
            return False
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in self._allowed.hosts


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"
