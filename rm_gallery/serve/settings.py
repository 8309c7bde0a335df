"""How a server is set up: where it listens, what it takes at most, and how long anything may last."""

from __future__ import annotations

from pydantic import Field

from rm_gallery.core.utils.models import Configured


class ServeSettings(Configured):
    """Settings of a server; ConfigError names the field that does not fit."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    max_body: int = Field(default=8 << 20, ge=1)
    """Bytes of a request's body."""
    max_depth: int = Field(default=64, ge=2)
    """Levels of nesting of a JSON body."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds one request may take; a client may ask for less with the header X-Timeout-Seconds."""
    read_timeout: float = Field(default=30.0, gt=0)
    """Seconds a client may take to send a body."""
