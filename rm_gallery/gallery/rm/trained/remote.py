"""Rewards of another process: `remote:URL` asks a server that `rm-gallery serve` started."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, SecretStr, field_serializer

from rm_gallery.core.data.conversation import messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.reward_server import RewardServer, split_reward_url
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.kinds import TRUTH_LABELS
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import sent_along
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import Cause, ConfigError, RMGalleryError, Unscored

_SERVER = "(server)"


class NotScored(RMGalleryError):
    """The server's reward failed at this completion; `reason` is the server's."""

    def __init__(self, message: str, reason: str, cause: Cause) -> None:
        super().__init__(message)
        self.reason, self.cause = reason, cause


@RewardRegistry.register("remote:")
class RemoteReward(BasePointWiseReward):
    """Score that a reward or evaluator behind `rm-gallery serve` gives: the same number as beside it.

    The URL is that of the reward, http://HOST:PORT/v1/rewards/NAME, or of a deployed evaluator, …/v1/evaluations/ID. Range
    is the reward's own, higher is better. The server sees conversation, steps, reference and the sample's metadata and
    labels, without preferences and other verdicts. What it could not score is unscored or failed with its reason; its
    components are the metrics of the result. Calls share retries, limits, outages and budget with those of judges.

    Raises:
        ConfigError: a URL that names no reward.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_server"})
    settles_worst: ClassVar[bool] = True

    url: str = Field(min_length=1)
    """URL of the reward or the evaluator."""
    api_key: SecretStr | None = None
    """Token of the server; without it that in RM_GALLERY_TOKEN."""
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers of every request."""
    max_workers: int = Field(default=64, ge=1)
    """Judgements in flight at once, unless a batch says otherwise."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds one attempt may take; the server is told."""
    max_attempts: int = Field(default=6, ge=1)
    """Attempts per call, the first included."""
    max_outage: float = Field(default=30.0, ge=0)
    """Seconds a server that answered before may be away until the run stops; 0 never waits."""

    example = Example(
        sample_of("How much is 2 + 2?", "4", "5"),
        use="One server holds the reward, its judge's key and its cache; every training process asks it by its URL.",
        environment="a server that `rm-gallery serve` started",
    )

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        """Take the reward's URL, and the settings."""
        if not url:
            raise ConfigError("RemoteReward needs a URL: remote:URL, such as remote:http://127.0.0.1:8000/v1/rewards/math.")
        split_reward_url(url, "the URL of remote:")  # at once: it is the reward's name, and may hold a password
        super().__init__(**{"url": url, "name": f"remote:{url}", **settings})

    @field_serializer("default_headers", when_used="json")
    def _hidden(self, value: dict[str, str]) -> dict[str, str]:
        return dict.fromkeys(value, "***")

    @property
    def server(self) -> RewardServer:
        """The server as the call path knows it; made once, and again after a setting was changed."""
        base, target = split_reward_url(self.url, "the URL of remote:")
        settings: dict[str, Any] = {"model": target, "base_url": base, "api_key": self.api_key}
        settings |= {"default_headers": self.default_headers, "timeout": self.timeout}
        settings |= {"max_attempts": self.max_attempts, "max_outage": self.max_outage}
        known: tuple[dict[str, Any], RewardServer] | None = self.__dict__.get(_SERVER)
        if known is None or known[0] != settings:
            known = self.__dict__[_SERVER] = settings, RewardServer(**settings)
        return known[1]

    def check(self) -> None:
        """Raise ConfigError for a URL or a token that is none; asks nobody."""
        self.server.check()

    def describe(self) -> dict[str, Any]:
        """The settings and the server, without secrets."""
        own = self.model_copy(update={"api_key": None, "default_headers": {}})
        told = super(RemoteReward, own).describe()
        for name in ("api_key", "default_headers", "timeout", "max_attempts", "max_outage"):
            told.pop(name, None)
        return {**told, "server": {**self.server.describe(), **sent_along(self.server)}}

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        answer = (await self.server.ascore([item_of(sample)]))[0]
        if answer.score is None:
            if answer.status == "unscored":
                raise Unscored(answer.message, reason=answer.reason, cause=answer.cause)
            raise NotScored(answer.message, answer.reason, answer.cause or "endpoint")
        detail = RewardDimensionWithScore(name=self.name, score=answer.score, reason=answer.message or None)
        extra = {"metrics": answer.components} if answer.components else {}
        return RewardResult(name=self.name, details=[detail], extra_data=extra)


def item_of(sample: DataSample) -> dict[str, Any]:
    """A sample with one output as an item of the server's own format."""
    output = sample.output[0]
    turns = messages_of(sample, output)
    begins = len(sample.input)
    item: dict[str, Any] = {"prompt": turns[:begins] or "", "completion": turns[begins:] or ""}
    label = {name: value for name, value in (output.answer.label or {}).items() if name not in TRUTH_LABELS}
    reference = sample.reference()
    row = {**(sample.metadata or {}), **label}
    if reference is not None:
        item["reference"] = reference
        row.pop("reference", None)
    if row:
        item["row"] = row
    if sample.unique_id:
        item["id"] = sample.unique_id
    return item
