"""verl: a reward as `compute_score` of `reward.custom_reward_function`, called with one sample.

verl (0.9) needs a module-level `async def`, takes the keys of a batch from its first sample, and
has no word for "no score": so every call gives the same numeric keys, and a completion without a
score has `on_error`'s number with `unscored` or `failed` beside it. The default is the mean of its
group, which moves nobody's advantage (in verl's own loop, where samples come one by one, the mean
of those of its prompt before): raising would end the Ray call and with it the training. What the
completion broke itself is the worst score of the range, or `worst=`, so that breaking the reward
never pays.

verl hands over one sample at a time, to any of its reward workers. What compares the rollouts of a
prompt therefore needs `GroupRewardManager`, which waits for all of them.

Nothing of verl is imported until that manager is made.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import (
    Conversation,
    TrainerReward,
    picked,
    refuse_comparing,
)
from rm_gallery.train.live import LiveWatch, live_watch_of

ROUTER = "router"
"""`base_url` that stands for the reward model which verl itself serves."""
_KWARGS = "reward.custom_reward_function.reward_kwargs"
_MANAGER = (
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.name=GroupRewardManager",
    "reward.reward_manager.module.path=pkg://rm_gallery.integrations.verl",
)
ONE_BY_ONE = f"Take `compute_scores` and verl's setting {' '.join(_MANAGER)}."
INCOMPLETE = "incomplete"
"""Key of the flag: 1.0 where a rollout was compared without some of its group."""
_WAIT = 600.0
_KEPT_GROUPS = 1024
"""Scored groups that are kept for rollouts that come late."""
_AT_ONCE = 1000
"""Calls that Ray runs at once in one reward worker."""
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
        refuse_comparing(self.scorer, ONE_BY_ONE)
        row = _columns(data_source, ground_truth, extra_info)
        asked = self._prompt_of(row)
        score = await self.scorer.ascore(asked, solution_str, row)
        await self._show(solution_str, score, asked, row)
        return self._reward_dict(score)

    compute_score_sync = library_loop.blocking(compute_score, "compute_score_sync", drives=True)
    """For the `remote` reward manager, which takes no async function."""

    async def _show(self, text: str, score: Score[float], asked: Conversation, row: Any) -> None:
        """Let the watch see one completion; TrainingStopped where it says so."""
        if self.watch is not None and _trained_on(row):
            beside = {"components": score.components, "prompt": asked, "row": row}
            await self.watch.anote(text, score.value, **beside)
            self.watch.check()

    def compute_scores(
        self,
        data_sources: Iterable[Any] = (),
        solution_strs: Sequence[str] = (),
        ground_truths: Iterable[Any] = (),
        extra_infos: Iterable[Any] | None = None,
        **unused: Any,
    ) -> list[dict[str, float]]:
        """Score a batch in one run, for `GroupRewardManager` and the batch manager of earlier
        versions.
        """
        if "solution_str" in unused:  # another manager, with one sample
            raise ConfigError(f"{self.scorer.name} was given one sample. {ONE_BY_ONE}")
        infos = [None] * len(solution_strs) if extra_infos is None else list(extra_infos)
        rows = [_columns(*each) for each in zip(data_sources, ground_truths, infos, strict=True)]
        asked = [self._prompt_of(row) for row in rows]
        scores = self.scorer.score_rows(asked, solution_strs, rows)
        for each in zip(solution_strs, scores, asked, rows, strict=True):
            library_loop.drive(self._show(*each))
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
        A bound method, which verl sees as async (or not), and which pickles. Of a reward that
        compares it is `compute_scores`, for `GroupRewardManager`.

    Raises:
        ConfigError: as `VerlReward` does; the reward compares, and `sync` is set.
    """
    made = VerlReward(reward, **settings)
    if made.scorer.reward.compares and not sync:
        return made.compute_scores
    refuse_comparing(made.scorer, ONE_BY_ONE)
    return made.compute_score_sync if sync else made.compute_score


def verl_overrides(
    reward: str, *, sync: bool = False, groups: bool = False, **settings: Any
) -> list[str]:
    """The command-line overrides that make verl use a registered reward, without a file of one's
    own.

    `groups` is for one that compares: the rollouts of a prompt are scored together, by
    `GroupRewardManager`. Settings are those of `VerlReward`, as far as JSON can say them;
    ConfigError for one that it cannot, and for `sync` with `groups`.
    """
    if sync and groups:
        raise ConfigError("verl_overrides: the remote manager (sync=) knows no groups (groups=).")
    given = plain({"reward": reward, **settings})
    try:
        json.dumps(given)
    except TypeError as error:
        raise ConfigError(
            f"verl_overrides: {error}; write a file with verl_reward(…) for what no text can say."
        ) from error
    name = "compute_scores" if groups else "compute_score_sync" if sync else "compute_score"
    own = ["path=pkg://rm_gallery.integrations.verl", f"name={name}"]
    lines = [f"reward.custom_reward_function.{line}" for line in own]
    lines += [f"+{_KWARGS}.{key}={_hydra(value)}" for key, value in given.items()]
    return lines + (["reward.reward_manager.name=remote"] if sync else list(_MANAGER) * groups)


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
    """The batch form of `compute_score`, for `GroupRewardManager` and the batch manager of earlier
    versions.
    """
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


# -- groups ----------------------------------------------------------------------------------------


class GroupRewardManager:
    """A reward manager of verl's that scores the rollouts of a prompt together.

    Named by `reward.reward_manager` (`verl_overrides(…, groups=True)` writes the lines); the custom
    reward function is then `compute_scores`, or `verl_reward(…)` of a reward that compares. verl
    calls a random reward worker for each rollout, so one Ray actor of the job gathers them; with
    `reward.num_workers=1` the worker itself does.

    A group is the rollouts with one `uid`, `actor_rollout_ref.rollout.n` of them, in validation
    `val_kwargs.n`. When none has come for `+reward.group_timeout` seconds (600) those that came are
    compared, and one that comes later is compared with them; `incomplete` among what verl logs is
    then 1.0. verl does not say which rows are validated: where the two numbers differ, `split` in
    `extra_info` says it ("test", "val", …; else the row is trained on).

    Args:
        config: verl's configuration.
        tokenizer: the policy's.
        compute_score: the custom reward function, a batch one.
        **served: `reward_router_address` and `reward_model_tokenizer` of verl.

    Raises:
        ConfigError: the function is none for groups, or there is one rollout a prompt.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **served: Any) -> None:
        """Build the manager, and the actor that gathers where it is not there yet."""
        from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

        if config.reward.custom_reward_function.path is None or inspect.iscoroutinefunction(
            compute_score
        ):
            raise ConfigError(
                "GroupRewardManager needs a function of a batch; set "
                "reward.custom_reward_function to compute_scores, or to verl_reward(…) of a reward "
                "that compares."
            )
        rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
        if rollout.n < 2:
            raise ConfigError(
                f"actor_rollout_ref.rollout.n is {rollout.n}; rewards that compare need at least 2."
            )
        validated = trainer.test_freq > 0 or trainer.val_before_train or trainer.val_only
        self._sizes = (rollout.n, rollout.val_kwargs.n if validated else rollout.n)
        workers = config.reward.num_workers
        if (all_at_once := config.data.train_batch_size * rollout.n) > workers * _AT_ONCE:
            logger.warning(
                "A step has {} rollouts, and {} reward workers hold {} that wait for their group; "
                "set reward.num_workers={}.",
                all_at_once,
                workers,
                workers * _AT_ONCE,
                -(-all_at_once // _AT_ONCE),
            )
        wait = float(config.reward.get("group_timeout", _WAIT))
        self._group: ContextVar[str] = ContextVar("group")
        gathering = _gathering(config, wait) if workers > 1 else None
        self._score = gathering or RolloutGroups(lambda: compute_score, wait).score
        self._naive = NaiveRewardManager(config, tokenizer, self._scored, **served)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score one rollout, once its group has come."""
        there = data[-1:][0].non_tensor_batch
        if "uid" not in there:
            raise ConfigError("verl passes no uid here, so that no group can be told from another.")
        self._group.set(str(there["uid"]))
        found: dict[str, Any] = await self._naive.run_single(data)
        return found

    async def _scored(
        self, *, reward_model_tokenizer: Any = None, **sample: Any
    ) -> dict[str, float]:
        found: dict[str, float] = await self._score(
            self._group.get(), self._size_of(sample["extra_info"]), sample
        )
        return found

    def _size_of(self, extra_info: Mapping[str, Any]) -> int:
        trained, validated = self._sizes
        if trained != validated and "split" not in extra_info:
            raise ConfigError(
                f"A prompt has {trained} rollouts in training and {validated} in validation, and "
                "verl does not say which this is: put `split` into extra_info, or set "
                f"actor_rollout_ref.rollout.val_kwargs.n={trained}."
            )
        return int(trained if _trained_on(extra_info) else validated)

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: Sequence[float]) -> Any:
        """As verl does it: each score at the last token of its response."""
        from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

        return RewardManagerBase.assemble_rm_scores(data, scores)


def _gathering(config: Any, wait: float) -> Callable[..., Any] | None:
    """The awaitable call of the actor that gathers for all reward workers of the Ray job; None
    without Ray.
    """
    import ray
    from verl.trainer.ppo.reward import get_custom_reward_fn

    if not ray.is_initialized():
        return None
    job = ray.get_runtime_context().get_job_id()
    actor: Any = ray.remote(RolloutGroups).options(
        name=f"rm_gallery_groups_{job}", get_if_exists=True, num_cpus=0, max_concurrency=100_000
    )
    called: Callable[..., Any] = actor.remote(
        functools.partial(get_custom_reward_fn, config), wait
    ).score.remote
    return called


class RolloutGroups:
    """Rollouts that wait for the others of their prompt; a group is scored by one call.

    Args:
        load: gives the function of a batch, `compute_scores`; called once, in this process.
        wait: seconds after the last rollout of a group that came before it is scored without those
            that have not.

    Example:
        >>> def longest(data_sources, solution_strs, ground_truths, extra_infos):
        ...     most = max(map(len, solution_strs))
        ...     return [{"score": len(text) / most} for text in solution_strs]
        >>> async def two() -> list[dict[str, float]]:
        ...     groups = RolloutGroups(lambda: longest, wait=60.0)
        ...     row = {"data_source": "x", "ground_truth": None, "extra_info": {}}
        ...     said = [{**row, "solution_str": text} for text in ("a", "four")]
        ...     return await asyncio.gather(*(groups.score("uid", 2, each) for each in said))
        >>> asyncio.run(two())
        [{'score': 0.25, 'incomplete': 0.0}, {'score': 1.0, 'incomplete': 0.0}]
    """

    def __init__(self, load: Callable[[], Callable[..., Any]], wait: float) -> None:
        """Load the function; nothing is waited for yet."""
        self._compute_scores, self._wait = load(), wait
        self._open: dict[str, _Gathered] = {}
        self._done: dict[str, list[dict[str, Any]]] = {}
        self._threads = ThreadPoolExecutor(256, thread_name_prefix="rm-gallery-groups")

    async def score(self, group: str, size: int, sample: dict[str, Any]) -> dict[str, float]:
        """What `compute_scores` gives for a rollout, and `incomplete`.

        The rollouts come in any order and number; one more than `size`, or a late one, is compared
        with those of its group that came before.
        """
        if size < 2:
            return (await self._scored([sample], size))[0]
        if (before := self._done.get(group)) is not None:
            return (await self._scored([*before, sample], size))[-1]
        gathered = self._open.get(group)
        if gathered is None:
            gathered = self._open[group] = _Gathered()
            gathered.scores = asyncio.ensure_future(self._when_full(group, gathered))
        place = len(gathered.samples)
        gathered.samples.append(sample)
        gathered.size, gathered.full = size, place + 1 >= size
        if gathered.full:
            self._close(group)
        gathered.came.set()
        # one rollout may be cancelled; the others still wait
        return (await asyncio.shield(gathered.scores))[place]

    async def _when_full(self, group: str, gathered: _Gathered) -> list[dict[str, float]]:
        while not gathered.full:
            gathered.came.clear()
            try:
                await asyncio.wait_for(gathered.came.wait(), self._wait)
            except asyncio.TimeoutError:
                if not gathered.full:  # else the last came just now
                    self._close(group)
                break
        return await self._scored(gathered.samples, gathered.size)

    def _close(self, group: str) -> None:
        """From here on who comes is late."""
        self._done[group] = self._open.pop(group).samples
        while len(self._done) > _KEPT_GROUPS:
            del self._done[next(iter(self._done))]

    async def _scored(self, samples: list[dict[str, Any]], size: int) -> list[dict[str, float]]:
        keys = ("data_source", "solution_str", "ground_truth", "extra_info")
        columns = {f"{key}s": [sample[key] for sample in samples] for key in keys}
        served = {key: value for key, value in samples[0].items() if key not in keys}
        call = functools.partial(self._compute_scores, **columns, **served)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        incomplete = float(len(samples) < size)
        return [{**each, INCOMPLETE: incomplete} for each in found]


class _Gathered:
    """The rollouts of a group so far."""

    scores: asyncio.Future[list[dict[str, float]]]

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.came, self.full, self.size = asyncio.Event(), False, 1


def _trained_on(row: Mapping[str, Any]) -> bool:
    return str(row.get("split", "")).lower() not in _NOT_TRAINED


def _columns(data_source: Any, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    """The columns of a sample; `extra_info` belongs to verl and is not written to."""
    return {
        **plain(extra_info or {}),
        "data_source": data_source,
        "ground_truth": plain(ground_truth),
    }
