"""What rewards without a model share: references, what is known of a sample, one score as a result, the tokenizer setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator, Field, PlainSerializer

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult, sample_of
from rm_gallery.core.text.language import TokenizerName, tokenizer
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.models import build

SUMMARY = sample_of(
    "Sum up the report in one sentence.",
    "The bridge is closed for repairs in May.",
    "In May the town will repair its old bridge.",
    "It rained all week.",
    reference="The old bridge is closed for repairs in May.",
)
"""The example of rewards that compare an answer's text with a reference's."""


class RuleReward(BasePointWiseReward):
    """Base of the pointwise rewards that follow a rule: text, references and metadata decide, no judge.

    Scores lie in [0, 1] unless a reward says otherwise.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)


class KillableRule(RuleReward):
    """Base of rules that a text can keep busy for ever: each answer runs in a process that can be killed."""

    cpu_bound: ClassVar[bool] = True

    timeout: float = Field(default=5.0, gt=0)
    """Seconds one answer may take; one that takes longer, where another answer does not, has the worst score."""

    @property
    def kill_after(self) -> float:  # type: ignore[override]  # a class has no setting yet
        """The timeout."""
        return self.timeout


def answer_text(sample: DataSample) -> str:
    """The answer of the sample's one output, Windows line ends made plain."""
    text = sample.output[0].answer.text
    return text.replace("\r\n", "\n") if "\r" in text else text


def references_of(sample: DataSample, reward: str) -> list[str]:
    """All reference answers of the sample as text; a list stands for several answers that are equally right.

    Raises:
        Unscored: there is no reference, or only blank ones (reason `no_reference`).
    """
    value = sample.reference()
    if isinstance(value, str):
        found = [value] if value and not value.isspace() else []
    else:
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        found = [text for text in map(str, values) if text.strip()]
    if not found:
        raise Unscored(
            f"{reward} needs a reference: set answer.label['reference'], or metadata 'reference' or "
            "'ground_truth'; of a table or data set, name the column with --reference (reference=).",
            reason="no_reference",
        )
    return found


def known(sample: DataSample, *keys: str) -> Any:
    """The first of `keys` that the answer's label, else the sample's metadata, has a value for; None without one."""
    for source in (sample.output[0].answer.label, sample.metadata):
        for key in keys:
            if source and source.get(key) is not None:
                return source[key]
    return None


def one_score(name: str, score: float, reason: str | None = None, extra: dict[str, Any] | None = None) -> RewardResult:
    """The result of a pointwise reward with a single dimension of the reward's own name."""
    # the score is checked where results are merged; checking the rest here would double a cheap rule's cost
    detail = build(RewardDimensionWithScore, {"name": name, "reason": reason, "source": None, "score": score})
    return build(RewardResult, {"name": name, "details": [detail], "extra_data": {} if extra is None else extra})


def shown(value: object, limit: int = 60) -> str:
    """A value as a reason may quote it: on one line, printable, shortened in the middle."""
    if isinstance(value, str) and len(value) > 4 * limit:
        value = value[: 2 * limit] + value[-2 * limit :]
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


def _tokenizer_checked(value: Any) -> Any:
    is_hook = not isinstance(value, str) and (callable(value) or callable(getattr(value, "encode", None)))
    if value is None or is_hook or value in get_args(TokenizerName):
        return value
    names = ", ".join(get_args(TokenizerName))
    raise ConfigError(f"found {shown(value)}; give one of {names}, a function text -> tokens, or an object with encode().")


def _tokenizer_described(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    named = getattr(value, "name_or_path", None) or getattr(value, "__qualname__", None)
    return f"{type(value).__module__}.{type(value).__qualname__}({named or ''})"


TokenizerSetting = Annotated[Any, AfterValidator(_tokenizer_checked), PlainSerializer(_tokenizer_described, when_used="json")]
"""A name of `TokenizerName`, a function from a text to its tokens, an object with `encode` (transformers, tokenizers,
tiktoken, sentencepiece), or None."""


def tokens_of(setting: Any, text: str) -> Sequence[Any]:
    """The tokens of a text; special tokens such as a text's start are left out where the tokenizer lets one."""
    if isinstance(setting, str):
        return tokenizer(setting)(text)
    encode = getattr(setting, "encode", None)
    if not callable(encode):
        found: Sequence[Any] = setting(text)
        return found
    # both transformers' and tokenizers' classes have a method of that name
    encoded = encode(text, add_special_tokens=False) if hasattr(setting, "add_special_tokens") else encode(text)
    ids: Sequence[Any] = getattr(encoded, "ids", encoded)
    return ids
