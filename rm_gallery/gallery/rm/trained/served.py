"""Reward models behind a server, `served:URL` and `served-prm:URL`, and rewards of another process,
`remote:URL`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jinja2.exceptions import TemplateError
from pydantic import (
    Field,
    PositiveFloat,
    SecretStr,
    field_serializer,
    field_validator,
)

from rm_gallery.core.data.conversation import messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.reward_servers import (
    EndpointName,
    Numbers,
    RewardServer,
    ServedScorer,
    Way,
    split_reward_url,
    split_url,
)
from rm_gallery.core.model.transport import check_url
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward, sent_along
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.reward.view import TRUTH_LABELS
from rm_gallery.core.score import Score
from rm_gallery.core.text.language import CONTROL_MARKS
from rm_gallery.core.utils.errors import Cause, ConfigError, RMGalleryError, Unscored
from rm_gallery.gallery.rm.bounds import Count
from rm_gallery.gallery.rm.trained.conversation import (
    STEPPED,
    Dialogue,
    ProcessReward,
    any_of,
    dialogue_of,
    place_of_label,
    preference_example,
    rendered,
    template_text,
    without_marks,
)

_SERVER = "(server)"
_UNSAID = ("api_key", "default_headers", "extra_body", "timeout", "max_attempts", "max_outage")
WAYS = ("auto", "messages", "pair", "plain")


class _Elsewhere(BaseReward):
    """A reward that a server computes: where the server is, and how it is called."""

    SCHEME: ClassVar[str] = ""
    NEEDS: ClassVar[str] = "a URL"
    EXAMPLE_URL: ClassVar[str] = "http://127.0.0.1:8000"
    SERVER: ClassVar[Any] = RewardServer

    url: str = Field(min_length=1)
    """Where it is asked for."""
    api_key: SecretStr | None = None
    """Token of the server; without it that of the environment variable in the class's text."""
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers of every request."""
    timeout: PositiveFloat = 120.0
    """Seconds one attempt may take."""
    max_attempts: Count = 6
    """Attempts per call, the first included."""
    max_outage: float | None = Field(default=None, ge=0)
    """Seconds a server that answered before may be down until the run stops; None for what judges
    have.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        """Take the server's URL, and the settings."""
        if not url:
            raise ConfigError(
                f"{type(self).__name__} needs {self.NEEDS}: {self.SCHEME}URL, such as "
                f"{self.SCHEME}{self.EXAMPLE_URL}."
            )
        # at once: it is the reward's name, and may hold a password
        self.place_of(url)
        super().__init__(**{"url": url, "name": f"{self.SCHEME}{url}", **settings})

    @field_serializer("default_headers", "extra_body", when_used="json", check_fields=False)
    def _hidden(self, value: dict[str, Any]) -> dict[str, str]:
        return dict.fromkeys(value, "***")

    @classmethod
    def place_of(cls, url: str) -> tuple[str, str]:
        """The server's base URL and what is asked for there; ConfigError where the URL says
        neither.
        """
        raise NotImplementedError(f"{cls.__name__} says what its URL means.")

    def _own_settings(self, target: str) -> dict[str, Any]:
        """Settings of the server that not all of its kind have."""
        return {}

    @property
    def server(self) -> Any:
        """The server as the call path knows it; made once, and again after a setting was changed."""
        base, target = self.place_of(self.url)
        settings: dict[str, Any] = {
            "base_url": base,
            "api_key": self.api_key,
            "default_headers": self.default_headers,
            "timeout": self.timeout,
            "max_attempts": self.max_attempts,
            **self._own_settings(target),
        }
        if self.max_outage is not None:
            settings["max_outage"] = self.max_outage
        known = self.__dict__.get(_SERVER)
        if known is None or known[0] != settings:
            known = self.__dict__[_SERVER] = settings, self.SERVER(**settings)
        return known[1]

    def check(self) -> None:
        """Raise ConfigError for an invalid URL or token; sends nothing."""
        self.server.check()

    def describe(self) -> dict[str, Any]:
        """The settings and the server, without secrets."""
        own = self.model_copy(update={"api_key": None, "default_headers": {}, "extra_body": {}})
        settings = super(_Elsewhere, own).describe()
        said = {name: value for name, value in settings.items() if name not in _UNSAID}
        return {**said, "server": {**self.server.describe(), **sent_along(self.server)}}


class _ServedReward(_Elsewhere):
    """A reward server and how to call it; common base of `served:` and `served-prm:`."""

    SCHEME = "served:"
    NEEDS = "a server"
    SERVER = ServedScorer
    needs = frozenset({"server"})

    url: str = Field(min_length=1)
    """Where the server is; its path may name the endpoint, as in http://host:8000/classify."""
    endpoint: EndpointName | None = None
    """Server and endpoint, such as vllm/classify; without it the server is asked who it is."""
    model: str = ""
    """Name of the model as the server knows it; empty where it serves one."""
    api_key: SecretStr | None = None
    """Key of the server; without it that in OPENAI_API_KEY, as for judges."""
    extra_body: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Further fields of every request, such as truncate_prompt_tokens."""
    chat_template: str = "auto"
    """What the server is given: messages (it applies its chat template), pair (question and answer
    apart), plain (turns with their roles as one text), or a Jinja chat template or the file of one,
    which is then rendered here; auto is what the endpoint usually takes."""
    label: str | int | None = None
    """Which of several numbers is the score, by name or number."""

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    @field_validator("chat_template")
    @classmethod
    def _read_template(cls, value: str) -> str:
        return template_text(value, WAYS)

    @classmethod
    def place_of(cls, url: str) -> tuple[str, str]:
        """The server's base URL, and the endpoint that the path names."""
        return split_url(check_url(url, f"the URL of {cls.SCHEME}"))

    def _own_settings(self, target: str) -> dict[str, Any]:
        own = {"model": self.model, "named": target, "endpoint": self.endpoint}
        return {**own, "extra_body": self.extra_body}

    def check(self) -> None:
        """Raise ConfigError for an invalid URL, or an endpoint that cannot take this template;
        sends nothing.
        """
        super().check()
        if self.endpoint is not None:
            self.server.way_of(self.endpoint, self._way())

    def _way(self) -> Way:
        ways: dict[str, Way] = {"auto": "auto", "messages": "messages", "pair": "pair"}
        return ways.get(self.chat_template, "text")

    async def _request_numbers(self, dialogue: Dialogue) -> Numbers:
        way, messages = self._way(), dialogue.messages()
        given: dict[str, Any] = {"messages": messages}
        if self.chat_template == "plain":
            given = {"input": dialogue.plain()}
        elif way == "text":
            try:
                given = {"input": rendered(self.chat_template, messages), "templated": True}
            except TemplateError as error:
                raise Unscored(
                    f"{self.name}: its chat template refuses the conversation: {str(error)[:200]}",
                    reason="not_applicable",
                ) from error
        elif way != "messages":
            given |= {"query": dialogue.query(), "answer": dialogue.answer}
        numbers: Numbers = await self.server.ascore(way, given)
        return numbers

    def _score_place(self, numbers: Numbers, usual: int | None = None) -> int:
        """Which number of a row is the score; ConfigError where no label says so."""
        width = len(numbers.rows[0])
        names = numbers.names or tuple(map(str, range(width)))
        if self.label is not None:
            return place_of_label(self.label, names, self.name)
        if width == 1:
            return 0
        if usual is not None:
            return usual
        shown = ", ".join(names[:12])
        raise ConfigError(
            f"{self.name} gives {width} numbers ({shown}); say which is the score with label=."
        )


@RewardRegistry.register("served:")
class ServedReward(_ServedReward, BasePointWiseReward):
    """Score of a reward model behind a server for an answer in its conversation.

    Speaks to vLLM (/classify, /score, /rerank, /pooling), SGLang (/classify, /v1/rerank, /v1/score)
    and Text Embeddings Inference (/rerank, /predict); which one is named by `endpoint`, else the
    server is asked. Unbounded, higher is better: the number before sigmoid or softmax where the
    server can give it (`raw`). Calls share retries, limits, cache and budget with those of judges.
    A reply in another layout, or a number that is NaN or infinite, is failed. Control marks of
    common models inside texts are broken, so that an answer cannot end its turn.

    Raises:
        ConfigError: no URL, a server that does not say what it is, a template its endpoint cannot
            take, or several numbers and no `label`.
    """

    raw: bool = True
    """Whether numbers are asked for before sigmoid or softmax, which saturate."""
    label_token_ids: list[int] = Field(default_factory=list)
    """For sglang/score: the tokens whose probabilities are the numbers; `label` says which counts,
    the first by default.
    """

    example = preference_example("a server with a reward model")

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    def _own_settings(self, target: str) -> dict[str, Any]:
        own = {"raw": self.raw, "label_token_ids": self.label_token_ids}
        return {**super()._own_settings(target), **own}

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """Score the answer; one without text that only calls tools is unscored."""
        dialogue = dialogue_of(sample, self.name)
        numbers = await self._request_numbers(without_marks(dialogue, CONTROL_MARKS))
        # with one row per token, the last row scores the whole text
        return Score(
            numbers.rows[-1][self._score_place(numbers, 0 if self.label_token_ids else None)]
        )


@RewardRegistry.register("served-prm:")
class ServedProcessReward(_ServedReward, ProcessReward):
    """P(step is right) of a process reward model behind a server for every step of an answer.

    Asks vLLM's /pooling, which gives one row of numbers per step for a model with step pooling.
    Range [0, 1], higher is better. Steps are written one after another, `separator` behind each; of
    two numbers per step the second is that of a right one. A reply with another number of rows than
    steps is failed. `step_score` (mean, min, last, product) makes the answer's number of the
    steps'. Calls share retries, limits, cache and budget with those of judges.

    Raises:
        ConfigError: no URL, no `separator`, or more than two numbers per step and no `label`.
    """

    SCHEME = "served-prm:"

    endpoint = "vllm/pooling"
    separator: str = ""
    """What stands behind every step, as in the model's training, such as <extra_0>."""

    example = Example(
        STEPPED,
        params={"separator": "<extra_0>"},
        use=(
            "The scores say where a solution goes wrong, and which of several solutions is the "
            "soundest."
        ),
        environment="a server with a process reward model",
    )

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    def _own_settings(self, target: str) -> dict[str, Any]:
        return {**super()._own_settings(target), "raw": False}

    def check(self) -> None:
        """Raise ConfigError without a separator, and as for `served:`."""
        if not self.separator:
            raise ConfigError(
                f"{self.name}: say what stands behind every step with separator=, such as "
                f"<extra_0>."
            )
        if self.endpoint != "vllm/pooling":
            raise ConfigError(
                f"{self.name}: steps are scored by vllm/pooling, not by {self.endpoint}."
            )
        super().check()

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        dialogue = dialogue_of(sample, self.name, steps=True)
        dialogue = without_marks(without_marks(dialogue, CONTROL_MARKS), any_of([self.separator]))
        answer = "".join(step + self.separator for step in dialogue.steps)
        numbers = await self._request_numbers(dialogue._replace(answer=answer, steps=()))
        rows = numbers.rows
        if len(rows) == 1 and len(rows[0]) == len(dialogue.steps) != 1:
            rows = [[number] for number in rows[0]]  # one number per step, in one list
        place = self._score_place(Numbers(rows, numbers.names), 1 if len(rows[0]) == 2 else None)
        return Score(tuple(row[place] if place < len(row) else float("nan") for row in rows))


class NotScored(RMGalleryError):
    """The server's reward failed at this completion; `reason` is the server's."""

    def __init__(self, message: str, reason: str, cause: Cause) -> None:
        super().__init__(message)
        self.reason, self.cause = reason, cause


class BehindServer(_Elsewhere, BasePointWiseReward):
    """A reward that somebody else's process computes; common base of `remote:`, `nemo-gym:` and
    `ors:`.
    """

    needs = frozenset({"reward_server"})
    settles_worst = True

    timeout: PositiveFloat = 120.0
    """Seconds one attempt may take; sent to the server as its deadline."""
    max_outage: float = Field(default=30.0, ge=0)
    """Seconds a server that answered before may be away until the run stops; 0 never waits."""

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    def item(self, sample: DataSample) -> dict[str, Any]:
        """What the server is sent of a sample with one output."""
        raise NotImplementedError(f"{type(self).__name__} says what its server is sent.")

    def _own_settings(self, target: str) -> dict[str, Any]:
        return {"model": target}

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        answer = (await self.server.ascore([self.item(sample)]))[0]
        if answer.value is None:
            if answer.status == "unscored":
                raise Unscored(answer.reason, reason=answer.code, cause=answer.cause)
            raise NotScored(answer.reason, answer.code, answer.cause or "endpoint")
        extra = {"metrics": answer.components} if answer.components else {}
        return Score(answer.value, answer.reason, extra=extra)


@RewardRegistry.register("remote:")
class RemoteReward(BehindServer):
    """Score of a reward or evaluator behind `rm-gallery serve`: the same number as in its own
    process.

    The URL is that of the reward, http://HOST:PORT/v1/rewards/NAME, or of a deployed evaluator,
    …/v1/evaluations/ID. Range is the reward's own, higher is better. The server sees conversation,
    steps, reference and the sample's metadata and labels, without preferences and other verdicts.
    What it could not score is unscored or failed with its reason; its components are the metrics of
    the result. Without `api_key` the token is RM_GALLERY_TOKEN. Calls share retries, limits, outages
    and budget with those of judges.

    Raises:
        ConfigError: a URL that names no reward.
    """

    SCHEME = "remote:"
    EXAMPLE_URL = "http://127.0.0.1:8000/v1/rewards/math"

    example = Example(
        sample_of("How much is 2 + 2?", "4", "5"),
        use=(
            "One server holds the reward, its judge's key and its cache; every training process "
            "asks it by its URL."
        ),
        environment="a server that `rm-gallery serve` started",
    )

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    @classmethod
    def place_of(cls, url: str) -> tuple[str, str]:
        """As `split_reward_url`."""
        return split_reward_url(url, "the URL of remote:")

    def item(self, sample: DataSample) -> dict[str, Any]:
        """An item of the server's own format."""
        return item_of(sample)


def item_of(sample: DataSample) -> dict[str, Any]:
    """A sample with one output as an item of the server's own format."""
    output = sample.output[0]
    turns = messages_of(sample, output)
    begins = len(sample.input)
    item: dict[str, Any] = {"prompt": turns[:begins] or "", "completion": turns[begins:] or ""}
    reference, row = sample.reference(), row_of(sample)
    if reference is not None:
        item["reference"] = reference
        row.pop("reference", None)
    if row:
        item["row"] = row
    if sample.unique_id:
        item["id"] = sample.unique_id
    return item


def row_of(sample: DataSample) -> dict[str, Any]:
    """The metadata and the labels of a sample with one output, without verdicts on its answer."""
    label = sample.output[0].answer.label or {}
    known = {name: value for name, value in label.items() if name not in TRUTH_LABELS}
    return {**(sample.metadata or {}), **known}
