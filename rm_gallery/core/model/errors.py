"""From a provider's answer to an error that says whether another try may help."""

from __future__ import annotations

import time

import orjson

from rm_gallery.core.engine.calls.retry import parse_retry_after
from rm_gallery.core.model.transport import Reply
from rm_gallery.core.utils.errors import ProviderError, ProviderErrorKind

TRANSIENT_STATUS = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529})
HINTS = {
    401: "check the API key",
    403: "the key has no access to this model",
    404: "check the model name and the base URL (it usually ends in /v1)",
    400: "the endpoint rejects the request",
    422: "the endpoint rejects the request",
}


def provider_error(url: str, reply: Reply) -> ProviderError:
    """The error for an answer whose status is not 200.

    429 is a rate limit, unless it says the quota is used up (fatal: waiting does not help); 5xx and the like are
    transient; every other status is fatal.
    """
    detail, code = _detail(reply.body)
    kind: ProviderErrorKind = "fatal"
    if reply.status == 429:
        kind = "fatal" if code == "insufficient_quota" else "rate_limit"
    elif reply.status in TRANSIENT_STATUS or reply.status >= 500:
        kind = "transient"
    hint = HINTS.get(reply.status, "")
    message = f"{url} answered {reply.status}" + (f": {detail}" if detail else "") + (f" ({hint})" if hint else "")
    error = ProviderError(
        message, kind=kind, status=reply.status, retry_after=parse_retry_after(reply.headers, time.time())
    )
    error.filtered = code in ("content_filter", "content_policy_violation", "data_inspection_failed")
    return error


def _detail(body: bytes) -> tuple[str, str]:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:200].decode("utf-8", "replace").strip(), ""
    error = decoded.get("error", decoded) if isinstance(decoded, dict) else decoded
    if isinstance(error, dict):
        return str(error.get("message", error))[:300], str(error.get("code") or error.get("type") or "")
    return str(error)[:300], ""
