"""verl: a reward as `compute_score` of `reward.custom_reward_function`, called with one sample.

verl (0.9) needs a module-level `async def`, takes the keys of a batch from its first sample, and
has no word for "no score": so every call gives the same numeric keys, and a completion without a
score has `on_error`'s number with `unscored` or `failed` beside it. The default is the mean of its
group, which moves nobody's advantage (in verl's own loop, where samples come one by one, the mean
of those of its prompt before): raising would end the Ray call and with it the training. What the
completion broke itself is the worst score of the range, or `worst=`, so that breaking the reward
never pays.

Nothing of verl is imported here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import Conversation, TrainerReward, picked, refuse_comparing
from rm_gallery.train.live import LiveWatch, live_watch_of

ROUTER = "router"
"""`base_url` that stands for the reward model which verl itself serves."""
_KWARGS = "reward.custom_reward_function.reward_kwargs"
ONE_BY_ONE = "The batch reward manager of earlier versions takes groups (`compute_scores`)."
_PROMPTS = ("prompt", "raw_prompt", "question")
_NOT_TRAINED = frozenset(("test", "val", "valid", "validation", "dev", "eval"))
"""Values of `split` in `extra_info` that say a row is not trained on."""


class VerlReward(TrainerReward):
    """A reward in verl's three forms; picklable.

    Args:
        reward: whatever `RowScorer` takes.
        prompt: the key of `extra_info` that holds the prompt (a text or messages), which verl does
            not pass. Without it the first there is of prompt, raw_prompt, question; else the prompt
            is empty.
        components: names of the score's components to return with it: verl charts them and GDPO
            weighs them (`algorithm.gdpo_reward_keys`). They must be known before the first call.
        on_error: what a completion without a score gets: "mean" (by default), "worst", "raise" or a
            number.
        watch: a `LiveWatch`, or its settings by name, that looks at the completions while they are
            scored; with `batch`, the completions of a step that one process scores. Each of verl's
            reward workers has a watch of its own and sees its share: with more than one
            (`reward.num_workers`) its false-alarm rate is for each of them. A stop raises
            `TrainingStopped`, which ends the Ray call and the training. Rows whose `split` in
            `extra_info` is that of a test are not watched.
        **scoring: `reference`, `columns`, `llm`, `options`, … of `RowScorer`; columns are the keys
            of `extra_info`, and `ground_truth` and `data_source`. `ground_truth` is the reference
            unless another is named.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    reported = ("acc",)

    def __init__(
        self,
        reward: object,
        *,
        prompt: str | None = None,
        components: Sequence[str] = (),
        on_error: OnError = "mean",
        watch: LiveWatch | Mapping[str, Any] | None = None,
        **scoring: Any,
    ) -> None:
        """Build the reward; nothing is scored yet."""
        super().__init__(reward, components=components, on_error=on_error, **scoring)
        self._prompt = prompt
        self.watch = live_watch_of(watch)

    async def compute_score(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Any = None,
        **unused: Any,
    ) -> dict[str, float]:
        """Score one response: `score`, `acc` (the same, verl's core metric in validation),
        components and flags.

        verl adds further arguments when it serves a reward model; they are not used.
        """
        asked, row = self._prompt_and_row(data_source, ground_truth, extra_info)
        score = await self.scorer.ascore(asked, solution_str, row)
        if self.watch is not None and _trained_on(row):
            await self.watch.anote(solution_str, **_shown_to_watch(score, asked, row))
            self.watch.check()
        return self._reward_dict(score)

    def compute_score_sync(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Any = None,
        **unused: Any,
    ) -> dict[str, float]:
        """The blocking twin of `compute_score`, for the `remote` reward manager, which takes no
        async function.
        """
        asked, row = self._prompt_and_row(data_source, ground_truth, extra_info)
        score = self.scorer.score(asked, solution_str, row)
        self._show(solution_str, score, asked, row)
        return self._reward_dict(score)

    def _show(self, text: str, score: Score[float], asked: Conversation, row: Any) -> None:
        """Let the watch see one completion; TrainingStopped where it says so."""
        if self.watch is not None and _trained_on(row):
            self.watch.note(text, **_shown_to_watch(score, asked, row))
            self.watch.check()

    def _prompt_and_row(self, *given: Any) -> tuple[Conversation, dict[str, Any]]:
        refuse_comparing(self.scorer, ONE_BY_ONE)
        row = _columns(*given)
        return self._prompt_of(row), row

    def compute_scores(
        self,
        data_sources: Iterable[Any],
        solution_strs: Sequence[str],
        ground_truths: Iterable[Any],
        extra_infos: Iterable[Any] | None = None,
        **unused: Any,
    ) -> list[dict[str, float]]:
        """Score a batch in one run, for the batch reward manager of earlier versions."""
        infos = [None] * len(solution_strs) if extra_infos is None else list(extra_infos)
        rows = [_columns(*each) for each in zip(data_sources, ground_truths, infos, strict=True)]
        asked = [self._prompt_of(row) for row in rows]
        scores = self.scorer.score_rows(asked, solution_strs, rows)
        for each in zip(solution_strs, scores, asked, rows, strict=True):
            self._show(*each)
        return [self._reward_dict(each) for each in scores]

    def _prompt_of(self, row: Mapping[str, Any]) -> Conversation:
        asked: Conversation = picked(row, self._prompt, _PROMPTS, "extra_info")
        if asked is None and self.scorer.reward.compares:
            there = ", ".join(sorted(map(str, row)))
            raise ConfigError(
                f"{self.scorer.name} compares the responses to one prompt, and extra_info holds no "
                f"prompt; put it there and name its key (prompt=). The keys are: {there}."
            )
        return asked

    def _reward_dict(self, score: Score[float]) -> dict[str, float]:
        numbers = self.scorer.numbers(score, self.components)
        return {**numbers, "acc": numbers["score"]}


def verl_reward(reward: object, *, sync: bool = False, **settings: Any) -> Callable[..., Any]:
    """What a file that `reward.custom_reward_function.path` names calls `compute_score`.

    Args:
        reward: whatever `RowScorer` takes.
        sync: give the blocking function, for `reward.reward_manager.name=remote`.
        **settings: those of `VerlReward`.

    Returns:
        A bound method, which verl sees as async (or not), and which pickles.
    """
    made = VerlReward(reward, **settings)
    refuse_comparing(made.scorer, ONE_BY_ONE)
    return made.compute_score_sync if sync else made.compute_score


def verl_overrides(reward: str, *, sync: bool = False, **settings: Any) -> list[str]:
    """The command-line overrides that make verl use a registered reward, without a file of one's
    own.

    Settings are those of `VerlReward`, as far as JSON can say them; ConfigError for one that it
    cannot.
    """
    given = plain({"reward": reward, **settings})
    try:
        json.dumps(given)
    except TypeError as error:
        raise ConfigError(
            f"verl_overrides: {error}; write a file with verl_reward(…) for what no text can say."
        ) from error
    name = "compute_score_sync" if sync else "compute_score"
    own = ["path=pkg://rm_gallery.integrations.verl", f"name={name}"]
    lines = [f"reward.custom_reward_function.{line}" for line in own]
    lines += [f"+{_KWARGS}.{key}={_hydra(value)}" for key, value in given.items()]
    return lines + (["reward.reward_manager.name=remote"] if sync else [])


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar of overrides: quoted texts, lists and dicts without quoted keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)


# -- what a configuration names --------------------------------------------------------------------


async def compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **settings: Any
) -> dict[str, float]:
    """Verl's function for a reward that is named in `reward.custom_reward_function.reward_kwargs`,
    see `verl_overrides`.

    `settings` are `reward` and the settings of `VerlReward`; `base_url: router` is the reward model
    that verl serves.
    """
    return await _reward_named(settings).compute_score(
        data_source, solution_str, ground_truth, extra_info
    )


def compute_score_sync(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **settings: Any
) -> dict[str, float]:
    """The blocking twin of `compute_score`, for the `remote` reward manager."""
    return _reward_named(settings).compute_score_sync(
        data_source, solution_str, ground_truth, extra_info
    )


def compute_scores(
    data_sources: Iterable[Any],
    solution_strs: Sequence[str],
    ground_truths: Iterable[Any],
    extra_infos: Iterable[Any] | None = None,
    **settings: Any,
) -> list[dict[str, float]]:
    """The batch form of `compute_score`, for the batch reward manager of earlier versions."""
    return _reward_named(settings).compute_scores(
        data_sources, solution_strs, ground_truths, extra_infos
    )


def _reward_named(settings: dict[str, Any]) -> VerlReward:
    address = settings.pop("reward_router_address", None)
    settings.pop("reward_model_tokenizer", None)
    if settings.get("base_url") == ROUTER:
        if address is None:
            raise ConfigError(
                f"base_url is '{ROUTER}', but verl serves no reward model; set "
                f"reward.reward_model.enable."
            )
        settings["base_url"] = f"http://{address}/v1"
    if "reward" not in settings:
        raise ConfigError(
            f"No reward is named; add +{_KWARGS}.reward=NAME (rm-gallery list shows the names)."
        )
    return _cached_reward(json.dumps(plain(settings), sort_keys=True))


@functools.lru_cache(maxsize=64)
def _cached_reward(settings: str) -> VerlReward:
    return VerlReward(**json.loads(settings))


def _trained_on(row: Mapping[str, Any]) -> bool:
    return str(row.get("split", "")).lower() not in _NOT_TRAINED


def _shown_to_watch(score: Score[float], asked: Conversation, row: Any) -> dict[str, Any]:
    """What a watch is told of a completion beside its text."""
    beside = {"components": score.components, "prompt": asked, "row": row}
    return {"reward": score.value, **beside}


def _columns(data_source: Any, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    """The columns of a sample; `extra_info` belongs to verl and is not written to."""
    return {
        **plain(extra_info or {}),
        "data_source": data_source,
        "ground_truth": plain(ground_truth),
    }
