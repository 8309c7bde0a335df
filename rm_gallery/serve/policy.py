"""What every reply of every server of this package says to a browser: no script from elsewhere, no
sniffing, no framing, no copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

QUIET: dict[str, Any] = {
    "ws": "none",
    "log_level": "critical",
    "access_log": False,
    "server_header": False,
    "log_config": None,
}
"""Settings of uvicorn for every server here. Its own log settings would close every handler of the
process.
"""
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""For what is no page: JSON, text, an empty body. Nothing in it is loaded or run, whatever a
browser takes it for.
"""
STYLED = f"{NOTHING}; style-src 'unsafe-inline'"
"""For a page of ours without scripts."""
FOREIGN = f"sandbox; {STYLED}; img-src data:"
"""For HTML that we did not write, such as a card of a run folder: shown, but in an origin of its
own, without scripts, event handlers, meta refresh or forms; and a link of it tells nobody the
address, which holds the token."""
OWN = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""For a page whose scripts and styles are static files of this package."""

HEADERS = {
    "content-security-policy": NOTHING,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""The policy; a reply may bring a `content-security-policy` of its own, for a page, and nothing
else of it.
"""
_RAW = {name.encode(): value.encode() for name, value in HEADERS.items()}


def guarded(send: Send) -> Send:
    """A `send` of ASGI whose replies carry the policy."""

    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            own = {name.lower() for name, _ in given}
            message["headers"] = [
                *given,
                *((name, value) for name, value in _RAW.items() if name not in own),
            ]
        await send(message)

    return sent
