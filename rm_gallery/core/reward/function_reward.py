"""Reward functions as rewards: a sample's conversation is handed to the function, its result is the
outcome.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
import threading
from collections.abc import Awaitable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

from rm_gallery.core.data.conversation import MappingRecord, dict_of, messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.reward.abstract import Job
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePointWiseReward
from rm_gallery.core.reward.outputs import write_scores
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardMeta, RewardResult
from rm_gallery.core.score import Bounds, Score, score_of_error, scored
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError, Unscored


def _number(value: Any) -> Any:
    """A number as a plain float, also one of numpy or torch; texts are no numbers."""
    if isinstance(value, (str, bytes)) or value is None:
        raise ValueError(
            "a number is needed, not text" if value is not None else "a number is needed, not None"
        )
    return (
        value
        if isinstance(value, (int, float)) or not hasattr(value, "__float__")
        else float(value)
    )


FiniteScore = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]


class MetricResult(MappingRecord):
    """One component of a result: a finite score, why, and whether it could be judged at all."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    score: FiniteScore
    is_score_valid: bool = True
    reason: str = ""


class StepOutput(MappingRecord):
    """What was found out about one step of a conversation."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    step_index: int | str
    base_reward: FiniteScore
    metrics: dict[str, Any] = Field(default_factory=dict)
    reason: str | None = None
    terminated: bool = False
    control_plane_info: dict[str, Any] | None = None


class EvaluateResult(MappingRecord):
    """What a reward function says about a conversation: a finite score, why, and the components it
    was made of.

    `is_score_valid=False` says that there was nothing to judge by (unscored, never a 0); `error`
    that the judging broke.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    score: FiniteScore
    is_score_valid: bool = True
    reason: str | None = None
    metrics: dict[str, MetricResult] = Field(default_factory=dict)
    step_outputs: list[StepOutput] | None = None
    error: str | None = None


def checked_result(value: Any, name: str) -> EvaluateResult:
    """What a function returned as a result: a result, a mapping of its fields, or a number alone."""
    if isinstance(value, EvaluateResult):
        if not math.isfinite(value.score):  # set after it was made
            raise ValueError(f"{name} gave the score {value.score}; a score is a finite number.")
        return value
    if isinstance(value, Mapping):
        return EvaluateResult.model_validate(dict(value))
    if (
        isinstance(value, BaseModel)
        and type(value).model_fields.keys() <= EvaluateResult.model_fields.keys()
    ):
        return EvaluateResult.model_validate(value.model_dump())
    if value is None:
        return EvaluateResult(
            score=0.0, is_score_valid=False, reason=f"{name} returned None: no score."
        )
    if isinstance(value, (str, bytes, Sequence)) or not hasattr(value, "__float__"):
        raise TypeError(
            f"{name} returned {type(value).__name__}; a reward function returns an EvaluateResult, "
            f"a dict of its fields or a number."
        )
    return EvaluateResult(score=value)


_PREFIX = "reward_file_"
_lock = threading.RLock()
_known: dict[Path, tuple[str, ModuleType]] = {}
"""By file: a hash of what it said when it was loaded, and the module it gave."""


class _Unkept(SourceFileLoader):
    """Reads the source and no bytecode: what is kept of that goes by the size and the second of the
    last change.
    """

    def path_stats(self, path: str) -> NoReturn:
        """None, by which the import system knows that nothing is to be kept."""
        raise OSError(path)


def split_target(target: str) -> tuple[str, str]:
    """File or module, and the name in it (empty when left out), of `FILE:NAME`; a drive letter is
    no name.
    """
    where, colon, name = target.rpartition(":")
    return (where, name) if colon and where and name.isidentifier() else (target.rstrip(":"), "")


def origin_of(module: str | None) -> str | None:
    """The file a module of this kind was loaded from, None for a module that is imported by its
    name.
    """
    loaded = sys.modules.get(module or "") if (module or "").startswith(_PREFIX) else None
    return None if loaded is None else str(loaded.__file__)


def load_module(where: str) -> ModuleType:
    """The module that a file, or a dotted name, is; a file that has changed since is loaded again.

    Modules beside the file can be imported by it. Raises ConfigError when it is absent or raises on
    import.
    """
    if not (where.endswith(".py") or "/" in where or "\\" in where or Path(where).exists()):
        try:
            return _imported(where)
        except ImportError as error:
            raise ConfigError(
                f"{where}: no such file, and as a module it cannot be imported: {error}"
            ) from error
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{where}: the module cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    path = Path(where).expanduser().resolve()
    if path.is_dir():
        path = path / "main.py"
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{where}: {path} cannot be read ({error.strerror}); give the path of a Python file."
        ) from error
    says = hashlib.sha256(source).hexdigest()
    with _lock:
        known = _known.get(path)
        if known is not None and known[0] == says:
            return known[1]
        module = _executed(path, where)
        _known[path] = (says, module)
        return module


def _imported(where: str) -> ModuleType:
    """The module of this name, which may lie in the working directory: a command has that not on
    its path, as `python` has.
    """
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        here = str(Path.cwd())
        if error.name != where.partition(".")[0] or here in sys.path:
            raise
        sys.path.append(
            here
            # last, so that it hides nothing, and for good, since workers import what they are sent
            # by this name
        )
        importlib.invalidate_caches()
        return importlib.import_module(where)


def _executed(path: Path, where: str) -> ModuleType:
    name = f"{_PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{where}: {path.name} is no Python file; its name ends in .py.")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = _Unkept(name, str(path))
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    _set_aside(path.parent)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script without a main guard may end the process
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise ConfigError(
            f"{where}: {path.name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _set_aside(folder: Path) -> None:
    """Forget modules that were found beside another such file under the name of one beside this:
    each gets its own.
    """
    others = {path.parent for path in _known} - {folder}
    for neighbour in folder.iterdir():
        file = getattr(sys.modules.get(neighbour.stem), "__file__", None)
        if file is not None and not others.isdisjoint(Path(file).parents):
            del sys.modules[neighbour.stem]


GIVEN = (
    "messages",
    "rollouts_messages",
    "response",
    "responses",
    "original_messages",
    "ground_truth",
    "resources",
)
"""What a function gets by these names; columns of a data set with such a name do not come through.
"""


class InvalidResult(RMGalleryError):
    """A reward function said itself that judging broke, by the `error` of its result."""

    reason = "function_error"


def _result(reward: Any, evaluated: EvaluateResult) -> RewardResult:
    """A result as a reward returns it; what the function could not judge is raised."""
    if evaluated.error:
        raise InvalidResult(f"{reward.name}: {evaluated.error}")
    if not evaluated.is_score_valid:
        raise Unscored(
            evaluated.reason or f"{reward.name} said that its score is not valid.",
            reason="invalid_score",
            cause="rule",
        )
    extra: dict[str, Any] = {}
    if evaluated.metrics:
        extra["metrics"] = {name: metric.model_dump() for name, metric in evaluated.metrics.items()}
    if evaluated.step_outputs:
        extra["step_outputs"] = [step.model_dump() for step in evaluated.step_outputs]
    detail = RewardDimensionWithScore(
        name=reward.name, score=evaluated.score, reason=evaluated.reason
    )
    return RewardResult(name=reward.name, details=[detail], extra_data=extra)


class _OfFunction(BaseReward):
    """What both kinds share: the function, its fixed values, and what it is given."""

    function: SkipValidation[Any] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: Any = None, **settings: Any) -> None:
        """Take the function; its name is the reward's."""
        super().__init__(**_settings(function, settings))

    @property
    def score_range(self) -> Bounds:  # type: ignore[override]  # a class has none before it has a function
        """The range the function declares, else [0, 1]."""
        bounds: Bounds = self.function.score_range
        return bounds

    @property
    def range_declared(self) -> bool:  # type: ignore[override]
        """Whether the function declares one."""
        return bool(self.function.range_declared)

    @property
    def declares_missing(self) -> bool:
        """False: the function may hide what it does not get."""
        return False

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        """What the function declares."""
        return bool(self.function.deterministic)

    @property
    def fingerprint(self) -> Any:
        """What the function declares."""
        return self.function.fingerprint

    def _given(self, sample: DataSample, hooks: Mapping[str, Any]) -> dict[str, Any]:
        """What is known about a sample beside its messages, by the names that the function uses."""
        about = sample.metadata or {}
        given = {name: value for name, value in about.items() if name not in GIVEN}
        truth = sample.reference()
        if truth is not None:
            given["ground_truth"] = truth
        if self.function.takes("original_messages"):
            prompt = about.get("original_messages")
            given["original_messages"] = (
                [dict_of(message) for message in sample.input] if prompt is None else prompt
            )
        if "trainer_state" in self.function.names:
            given["trainer_state"] = _trainer_state()
        arguments: dict[str, Any] = self.function.arguments({**given, **self.params, **hooks})
        return arguments


def _trainer_state() -> Any:
    """What the trainer that asks says of where its run stands; None where none asks, or says
    anything.
    """
    run = current_run.get()
    while run is not None and run.trainer_state is None:
        run = run.parent
    return None if run is None else run.trainer_state


class FunctionReward(_OfFunction, BasePointWiseReward):
    """A reward function as a reward: each answer's conversation is handed to the function by
    itself.

    The function sees the whole conversation, the model's own last words as `response`, the sample's
    `reference()` as `ground_truth`, the input as `original_messages` and the metadata by their
    names. Its metrics are in `extra_data["metrics"]`. The range is the one the function declares,
    else [0, 1]; higher is better. A score outside is an error, never clipped.
    """

    @classmethod
    def of_name(cls, target: str) -> type[BaseReward]:
        """What `func:FILE:NAME` or `func:package.module:NAME` stands for, see `class_named`."""
        from rm_gallery.core.runner.in_files import class_named

        return class_named(target)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        returned: Any = self.function(messages=messages_of(sample, sample.output[0]), **given)
        return self._later(returned) if inspect.isawaitable(returned) else _result(self, returned)

    async def _later(self, returned: Awaitable[Any]) -> RewardResult:
        return _result(self, await returned)


def class_of_built(reward: BaseReward) -> type[BaseReward]:
    """A class that says what is known of a built reward, and gives just that one."""

    def new(_: type[BaseReward], **settings: Any) -> BaseReward:
        if not settings.keys() <= {"name", "max_workers", "deadline"}:
            raise ConfigError(
                f"{reward.name} is built already; give {min(settings)} where it is made."
            )
        given: BaseReward = reward.model_copy(update=settings) if settings else reward
        return given

    facts = {
        "kind": reward.kind,
        "judged": reward.judged,
        "needs": reward.needs,
        "stands_for": reward,
    }
    body = {
        "__new__": new,
        "__module__": type(reward).__module__,
        "__doc__": type(reward).__doc__,
        **facts,
    }
    body["__annotations__"] = dict.fromkeys(facts, ClassVar[Any])
    made: type[BaseReward] = RewardMeta(type(reward).__name__, (BasePointWiseReward,), body)
    return made


class AsyncFunctionReward(FunctionReward):
    """An async reward function as a reward; thousands of calls wait at once on the library's event
    loop.
    """

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class FunctionGroupReward(_OfFunction, BaseListWiseReward):
    """A reward function of mode `batch` as a reward: all answers of a sample are handed to it in
    one call.

    It returns one result for each, in their order; one that is not valid costs only its own answer
    the score.
    """

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        rollouts = [messages_of(sample, output) for output in sample.output]
        returned: Any = self.function(rollouts_messages=rollouts, **given)
        return (
            self._later(returned)
            if inspect.isawaitable(returned)
            else _Group(name=self.name, results=returned)
        )

    async def _later(self, returned: Awaitable[Any]) -> RewardResult:
        return _Group(name=self.name, results=await returned)

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[RewardResult]]
    ) -> None:
        """Each result goes to its own answer."""
        for job, raw in zip(jobs, outcomes, strict=True):
            if isinstance(raw.value, _Group):
                for at, evaluated in zip(job.place, raw.value.results, strict=True):
                    write_scores(self, sample.output[at].answer, _outcome_of(self, evaluated))
            else:
                for output in sample.output:
                    write_scores(self, output.answer, raw)


class AsyncFunctionGroupReward(FunctionGroupReward):
    """An async reward function of mode `batch` as a reward."""

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class _Group(RewardResult):
    """The results of a group, one for each answer."""

    results: list[EvaluateResult] = Field(default_factory=list)


def _outcome_of(reward: BaseReward, evaluated: EvaluateResult) -> Score[RewardResult]:
    try:
        return scored(_result(reward, evaluated))
    except RMGalleryError as error:
        return score_of_error(error)


def _settings(function: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a function's reward; a plain function is taken as if it were decorated."""
    from rm_gallery.core.reward.function import RewardFunction

    if function is None:
        return settings
    if not isinstance(function, RewardFunction):
        function = RewardFunction(function)
    return {"name": function.name, **settings, "function": function}
