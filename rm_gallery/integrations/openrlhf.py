"""OpenRLHF: a reward as the `reward_func` of the file that `--reward.remote_url` names.

OpenRLHF (0.11) calls it in a thread with lists of one: the decoded text of prompt and response
together, special tokens and all, the prompt, and the label. It takes a missing reward only where a
reward model stands in for it: a None that is not the first of its batch ends the training, and an
exception becomes a None. So a completion without a score has `on_error`'s number by default, with
`unscored` or `failed` in the logs beside it: the mean of those of its prompt before, else of all
before, which moves advantages least. What the completion broke itself is the worst score of the
range, or `worst=`. `on_error="none"` gives None, for a run that has a reward model.

The other way is its HTTP door: `rm-gallery serve` answers `/get_reward`. Nothing of OpenRLHF is
imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from rm_gallery.core.data.load.padding import without_padding
from rm_gallery.core.score import Score, failed
from rm_gallery.core.text.language import CONTROL_MARKS
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import TrainerReward, picked

_SURE, _TRIES = 48, 1000
"""Characters without blanks that identify the end of a truncated prompt, and positions tried."""
_FIRST = re.compile(f"(?:{CONTROL_MARKS.pattern})+")
_UNFOUND: Final = ("data", "The query does not begin with its prompt.", "data")


class OpenRLHFReward(TrainerReward):
    """What the file that `--reward.remote_url` names calls `reward_func`; picklable.

    Args:
        reward: whatever `RowScorer` takes.
        **scoring: `components`, names of the parts of the score that go into `extra_logs`, the same
            for every completion; `json_label`, whether a label is a JSON object of columns instead
            of the reference, of which `prompt` may name the one to show as the prompt (else it is
            the text with its chat template); `on_error`, "mean" (by default), "worst", "raise",
            "none" or a number; and `reference`, `columns`, `llm`, `options`, `worst`, … of
            `RowScorer`.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    takes_none = True
    one_by_one = "OpenRLHF has no place for groups."
    reported = ()

    def __init__(
        self,
        reward: object,
        *,
        components: Sequence[str] = (),
        json_label: bool = False,
        prompt: str | None = None,
        on_error: OnError = "mean",
        **scoring: Any,
    ) -> None:
        """Build the reward; nothing is scored yet."""
        if not json_label:
            scoring.setdefault("reference", "label")
            if prompt is not None:
                raise ConfigError(
                    f"prompt is {prompt!r:.80}, a key of JSON labels; set json_label=True as well."
                )
        super().__init__(reward, components=components, on_error=on_error, **scoring)
        self.__name__ = "reward_func"
        self._json, self._prompt = json_label, prompt
        self.scorer.padded = not json_label  # JSON has the fields that were written

    def __call__(
        self,
        queries: Sequence[str],
        prompts: Sequence[str],
        labels: Sequence[Any] | None = None,
        **unused: Any,
    ) -> dict[str, Any]:
        """Score responses: `rewards`, `scores` (within [0, 1], for dynamic filtering) and
        `extra_logs`.

        The values are numbers for one query, lists for several.

        Raises:
            NoScore: there is no score and `on_error` is "raise"; OpenRLHF logs it and takes None.
        """
        rows = [self._label_columns(label) for label in labels or [None] * len(queries)]
        responses = [
            response_of(query, prompt) for query, prompt in zip(queries, prompts, strict=True)
        ]
        given = [
            (
                prompt if self._prompt is None else picked(row, self._prompt, (), "The label"),
                response,
                row,
            )
            for prompt, response, row in zip(prompts, responses, rows, strict=True)
            if response is not None
        ]
        if len(given) == 1:
            scores = [self.scorer.score(*given[0])]
        else:
            scores = self.scorer.score_rows(*zip(*given, strict=True)) if given else []
        found = iter(scores)
        replies = [
            self._reward_reply(
                self.scorer.lost(failed(*_UNFOUND)) if response is None else next(found)
            )
            for response in responses
        ]
        return replies[0] if len(replies) == 1 else _merged_reply(replies)

    def _label_columns(self, label: Any) -> dict[str, Any]:
        if not self._json:
            return {"label": label}
        try:
            row = json.loads(label) if isinstance(label, str) else without_padding(label)
        except ValueError as error:
            raise ConfigError(
                f"json_label=True, but a label is no JSON: {label!r:.80} ({error})."
            ) from error
        if not isinstance(row, dict):
            raise ConfigError(
                f"json_label=True, but a label is {label!r:.80}; give JSON objects of columns."
            )
        return row

    def _reward_reply(self, score: Score[float]) -> dict[str, Any]:
        logs = self.scorer.numbers(score, self.components)
        value = logs.pop("score")
        if score.value is None and self.scorer.on_error == "none":
            return {"rewards": None, "scores": None, "extra_logs": logs}
        # a share of the reward's range, or clipped where that is open
        reward, (low, high) = self.scorer.reward, self.scorer.reward.score_range
        share = value if None in (low, high) or low == high else reward.normalized(value)
        return {"rewards": value, "scores": min(1.0, max(0.0, share)), "extra_logs": logs}


openrlhf_reward = OpenRLHFReward


def response_of(query: str, prompt: str) -> str | None:
    """The response in a text of prompt and response, as written; None when the prompt is not
    recognised.

    Special tokens may stand before the prompt, decoding may have given it back with other blanks,
    and its beginning may be cut off.
    """
    at = query.find(prompt)
    if at >= 0 and not CONTROL_MARKS.sub("", query[:at]).strip():
        return query[at + len(prompt) :]
    places = [place for place, char in enumerate(query) if not char.isspace()]
    squeezed, wanted = (_squeezed(text) for text in (query, prompt))
    skipped = len(places) - len(squeezed)
    known = wanted if squeezed.startswith(wanted) else _known_end(squeezed, wanted)
    if not known:
        return None
    end = places[skipped + len(known) - 1] + 1
    last = end + len(prompt) - len(prompt.rstrip())
    while end < min(last, len(query)) and query[end].isspace():
        end += 1
    return query[end:]


def _squeezed(text: str) -> str:
    """A text without blanks, and without the special tokens at its beginning."""
    packed = "".join(text.split())
    begins = _FIRST.match(packed)
    return packed[begins.end() :] if begins else packed


def _known_end(query: str, prompt: str) -> str:
    """The longest end of the prompt with which the query begins; empty where it is too short to be
    sure.
    """
    head, at = query[:_SURE], -1
    for _ in range(_TRIES):
        at = prompt.find(head, at + 1)
        if at < 0 or len(prompt) - at < _SURE:
            return ""
        if query.startswith(prompt[at:]):
            return prompt[at:]
    return ""


def _merged_reply(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Replies of one row each as one reply of lists."""
    logs = [reply["extra_logs"] for reply in replies]
    columns = {key: [log[key] for log in logs] for key in (logs[0] if logs else {})}
    numbers = {name: [reply[name] for reply in replies] for name in ("rewards", "scores")}
    return {**numbers, "extra_logs": columns}
