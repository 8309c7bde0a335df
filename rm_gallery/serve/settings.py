"""How a server is set up: where it listens, what it takes at most, and how long anything may last."""

from __future__ import annotations

from ipaddress import ip_address

from pydantic import Field

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import Configured


class ServeSettings(Configured):
    """Settings of a server; ConfigError names the field that does not fit."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    open: bool = False
    """Whether other machines may ask without a token."""
    max_body: int = Field(default=8 << 20, ge=1)
    """Bytes of a request's body."""
    max_bytes: int = Field(default=512 << 20, ge=1)
    """Bytes of all bodies that have arrived and are being read or scored; on top of that requests are refused with 429."""
    max_depth: int = Field(default=64, ge=2)
    """Levels of nesting of a JSON body."""
    max_waiting: int = Field(default=8192, ge=1)
    """Completions that wait for one reward or evaluator; on top of that requests are refused with 429."""
    max_workers: int | None = Field(default=None, ge=1)
    """Judgements of one reward in flight; None takes the reward's own where it was given one, else 128."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds one request may take; a client may ask for less with the header X-Timeout-Seconds."""
    read_timeout: float = Field(default=30.0, gt=0)
    """Seconds a client may take to send a body."""
    keep_alive: float = Field(default=30.0, gt=0)
    """Seconds an idle connection is kept."""
    linger: float = Field(default=1.0, ge=0)
    """Seconds after SIGTERM during which requests are still taken, with the word that the connection closes."""
    certificate: str | None = None
    """File with the certificate, for TLS."""
    key: str | None = None
    """File with its key."""

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_access(self, has_tokens: bool) -> None:
        """Raise ConfigError when other machines could ask and nobody said that they may."""
        if not (self.local or has_tokens or self.open):
            raise ConfigError(
                f"--host {self.host} lets other machines ask and there are no tokens; make one with `rm-gallery serve-token "
                "create` and give --tokens FILE, or say --open."
            )
