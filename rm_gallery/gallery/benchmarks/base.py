"""A benchmark is one object, and every file beside this one that holds one is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rm_gallery.core.data.load.converters import (
    RESPONSE_COLUMNS,
    RESPONSES_COLUMNS,
    DataConverter,
    RowRef,
    json_cell,
    required,
    text,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.denominator import Trait, labelled_traits
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.names import nearest, unknown_name
from rm_gallery.core.utils.plugins import plugins
from rm_gallery.gallery.benchmarks.figures import Extra, Report, with_baselines
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    JudgeGroup,
    Recorded,
    Row,
    Rows,
    Samples,
    joined,
    judged,
    not_asked,
    scores_by_model,
    sees_one_order,
)
from rm_gallery.gallery.benchmarks.page import Page, read_page
from rm_gallery.gallery.benchmarks.rules import PooledScorer, RuleScorer, strict_pairs

if TYPE_CHECKING:
    from typing_extensions import Self

ROW = RowRef("data", 1)
Turn = dict[str, Any]
Turns = list[Turn]
"""A conversation, as `DataSample` takes it."""
Output = dict[str, Any]
"""An answer with its labels and steps, as `DataSample` takes it."""


def given(about: Row) -> About:
    """What is known of some metadata: those that are not None."""
    return {key: value for key, value in about.items() if value is not None}


def cell(row: Row, column: str, where: RowRef) -> Any:
    """The column's value, of which a list or an object may stand as JSON text."""
    return json_cell(required(row, column, where))


def question(
    row: Row, column: str, where: RowRef, read: Callable[[Row, str, RowRef], Any] = text
) -> Turns:
    """The turns a column holds: a text, or with `required` or `cell` a conversation, too."""
    return turns(read(row, column, where), column, where)


def several(
    row: Row, column: str, where: RowRef, expected: str, fits: Callable[[Any], bool]
) -> list[Any]:
    """The list of one or more things a column holds; DataError where one of them does not fit."""
    value = cell(row, column, where)
    if not isinstance(value, list) or not value or not all(map(fits, value)):
        raise wrong(where, column, expected, value)
    return value


def beginning(text: str, names: Iterable[str]) -> str:
    """The first of the names that a text begins with; empty where it begins with none."""
    return next((name for name in names if text.startswith(name)), "")


def is_object(value: Any) -> bool:
    """Whether a value is an object with fields."""
    return isinstance(value, dict)


class Benchmark(DataConverter):
    """What a benchmark is: its layout, how it is judged, its official rule, and where it comes
    from.

    A subclass with a `name` is known from then on; one in a file of this package is found without
    any list. It names its `own_columns` and implements `convert`; it overrides `scorer` where its
    rule is not strict pairs, and `questions` where its pairs are judged apart.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names; case, hyphens, underscores and the owner of a hub name do not matter."""
    checkout: ClassVar[str] = ""
    """The rows in its layout that a checkout of this repository holds."""
    hub: ClassVar[str] = ""
    """Hub data set, where there is one."""
    split: ClassVar[str] = ""
    """The split of the hub data set that is scored; `*` for all of them, each under its name."""
    hub_config: ClassVar[str | None] = None
    """Its configuration there, where it has several."""
    hub_parts: ClassVar[tuple[str, ...]] = ()
    """Further hub data sets that belong to it."""
    version: ClassVar[str]
    """Version of the rule."""
    counts_all: ClassVar[bool] = False
    """Whether its scorer knows of all rows from the start, and counts those that it is not handed
    as not begun.
    """
    chance: ClassVar[float | None] = None
    """What guessing reaches; None where it is counted from the data or unknown."""
    lowest: ClassVar[float] = 0.0
    """The lowest figure there is; the highest is 1."""
    baselines: ClassVar[bool] = True
    """Whether the length of an answer can be judged: the longest and the shortest answer stand
    beside every score.
    """
    kinds: ClassVar[frozenset[str]] = frozenset({"pointwise", "trajectory", "listwise", "pairwise"})
    """Kinds of rewards that can judge it."""
    once: ClassVar[bool] = False
    """Whether of several rows with one id only the first is asked about and counted."""
    general: ClassVar[bool] = False
    """Whether its columns are anybody's: it is then only detected when no benchmark of its own
    fits.
    """
    modes: ClassVar[Mapping[str, str]] = {}
    """Official protocols that can be asked for by name, and what each does; none where there is
    only one.
    """
    own_columns: ClassVar[frozenset[str]] = frozenset()
    """The columns that every row of its layout has: `detect` is only asked about a row with all of
    them, and where values tell the layout as well it looks at these.
    """

    own_values: ClassVar[Mapping[str, Sequence[str]]] = {}
    """What some of these columns may hold; another value is another layout."""
    one_order: ClassVar[str] = ""
    """What a judge that sees each pair in one order misses; empty where no rule asks for both."""

    def __init__(self, mode: str | None = None) -> None:
        if mode is not None and mode not in self.modes:
            if not self.modes:
                raise ConfigError(
                    f"{self.name} has no modes, found mode '{mode}'; leave out --mode."
                )
            raise ConfigError(unknown_name(f"mode of {self.name}", mode, self.modes))
        self.mode = mode

    @classmethod
    def page(cls) -> Page:
        """What people read about it (source, licence, sizes, traps, published results, …), from
        NAME.yaml beside its module; a package of a single module may override this instead.
        """
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return read_page(Path(file).with_name(f"{cls.name}.yaml")) if file else Page()

    @property
    def protocol(self) -> str:
        """Version of the rule and, where one was asked for, the mode: what makes two figures
        comparable.
        """
        return f"{self.version}, mode {self.mode}" if self.mode else self.version

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            return
        known = _known.get(_name_key(cls.name))
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ConfigError(
                f"The benchmark name '{cls.name}' is taken by "
                f"{known.__module__}.{known.__qualname__}."
            )
        for name in (cls.name, cls.hub, *cls.aliases):
            if name:
                _known[_name_key(name)] = cls

    def detect(self, columns: Row) -> bool:
        """Whether a row is in this layout, by the benchmark's own columns (name to value of one
        row).
        """
        return (
            bool(self.own_columns)
            and self.own_columns <= columns.keys()
            # a list or an object has no hash
            and all(columns[name] in tuple(known) for name, known in self.own_values.items())
        )

    @abstractmethod
    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """The row as a sample with its labels; DataError names the row and the column that does not
        fit.
        """

    def sample(
        self,
        unique_id: str,
        asked: Any,
        outputs: list[Output],
        task: str | None,
        about: About | None = None,
    ) -> DataSample:
        """A sample of this benchmark: its id (empty for none), the messages of its input, its
        outputs, task and metadata.
        """
        return DataSample.model_validate(
            {
                "unique_id": unique_id,
                "input": asked,
                "output": outputs,
                "task_category": task,
                "source": self.name,
                "metadata": about,
            }
        )

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Start counting under the official rule, strict pairs unless overridden; `seed` is that of
        bootstrap intervals.
        """
        return PooledScorer(strict_pairs())

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The samples `reward` is asked to judge for one of the benchmark's; usually that sample
        itself.
        """
        return (sample,)

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Why the reward is not asked about a sample under this protocol, which then is unscored;
        None where it is asked.
        """
        return None

    def unasked(self, sample: DataSample, name: str, why: str) -> Judged:
        """A sample that `left_out` says nothing is asked about; `name` is what would have judged it."""
        return not_asked(sample, name, why)

    def judged(self, reward: BaseReward, sample: DataSample) -> Judged:
        """What the reward said about a sample it scored."""
        return judged(reward, sample)

    def agrees(self, one: Judged) -> float | None:
        """Whether the reward's verdict is that of people, 1 or 0, where credits do not say so; None
        where there is no verdict of both.
        """
        return None

    def traits(self, one: Judged) -> dict[str, Trait]:
        """What a sample is like, which a missing score may go with: its subset, lengths in
        characters, its labels.
        """
        prompt = sum([len(message.text) for message in one.sample.input])
        return labelled_traits(one.subset, prompt, one.lengths, one.chosen)

    def in_turn(self, one: Judged) -> Iterable[Judged]:
        """The samples that count from now on, now that `one` is judged: itself, unless the rule may
        stop before the last sample.

        Which samples finish first goes with the answers, so a rule that stops early counts them in
        an order of its own.
        """
        return (one,)

    def sides(self, one: Judged) -> list[str]:
        """Whose answers the outputs of a sample are, one name each; outputs that are judged alone
        may lose their score alone.
        """
        return [f"the {'chosen' if chosen else 'rejected'} answers" for chosen in one.chosen]

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """What a reader has to know about the figure of a reward of this kind."""
        if self.one_order and sees_one_order(reward):
            return (f"{reward.name} sees each pair in one order{self.one_order}",)
        return ()

    def facing(self, reward: BaseReward) -> Self:
        """This benchmark, as it judges this reward."""
        return self

    def check(self, reward: BaseReward) -> None:
        """Raise ConfigError, before anything is paid, for a reward whose kind cannot serve this
        benchmark.
        """
        if reward.kind not in self.kinds:
            named = "pointwise" if "pointwise" in self.kinds else min(self.kinds)
            raise ConfigError(
                f"{reward.name} is {reward.kind} and {self.name} is judged by "
                f"{' or '.join(sorted(self.kinds))} rewards; name a {named} one."
            )

    def score(self, judgements: Iterable[Judged], seed: int = 0) -> Report:
        """The official figure of judged samples, read once and in any order.

        Samples that are unscored, failed or stopped, or whose labels do not fit the rule
        (`extra["n_unfit_labels"]`) enter no score: they are counted beside it. `score` is None when
        nothing was scored.
        """
        counting = self.scorer(seed)
        for one in judgements:
            counting.add(one)
        return self.named(counting.report())

    def named(self, report: Report) -> Report:
        """The report with this benchmark's name, version and chance level in it."""
        return replace(
            with_baselines(report, {}, self.chance), benchmark=self.name, version=self.protocol
        )

    def ids(self, sample: DataSample) -> tuple[str, ...]:
        """The names under which a file of scores may know a sample of this benchmark."""
        return (sample.unique_id,)

    def under(self, **rule: str) -> Self:
        """This benchmark with settings of its rule, by name; ConfigError for one it does not have."""
        for setting in rule:
            words = setting.split("_")
            raise ConfigError(
                f"{self.name} has no {' '.join(words)} to set; leave out --{'-'.join(words)}."
            )
        return self

    def recorded_scores(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """Judged samples out of scores made elsewhere, each with the group it belongs to (such as
        the model that judged).

        A row holds the score of one candidate: `id`, `candidate`, `score` and, where pairs were
        shown in both orders, `order`; `samples` are the rows of the benchmark they are joined to.
        Raises DataError for what does not join.
        """
        return joined(self.name, self.under(**rule).ids, partial(scores_by_model, rows), samples)

    def replayed(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """Judged samples out of recorded texts of a judge, read by the protocol's own parser, each
        with its group.
        """
        raise ConfigError(f"{self.name} reads no recorded judge texts; leave out --replay.")

    def recorded_scorer(self, seed: int = 0) -> RuleScorer:
        """Start counting recorded judgements; differs where the protocol has a rule of its own for
        unreadable texts.
        """
        return self.scorer(seed)

    def recorded_line(self, group: JudgeGroup, report: Report) -> Extra:
        """What `bench --json` prints of one recorded group."""
        return {**group, **report.to_dict()}


_known: dict[str, type[Benchmark]] = {}


def _name_key(name: str) -> str:
    """What counts as the same name: "rewardbench2" and "allenai/reward-bench-2" are."""
    return re.sub(r"[-_\s]", "", name.rsplit("/", 1)[-1].lower())


@cache
def _import_all() -> None:
    """Import every file of this package, and what packages add by `rm_gallery.benchmarks`, once: so
    benchmarks become known.
    """
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    for name, given in plugins("benchmarks"):
        if not (isinstance(given, type) and issubclass(given, Benchmark)):
            raise ConfigError(
                f"The benchmark '{name}' of an installed package is {given!r:.80}; expected a "
                f"subclass of Benchmark."
            )


def benchmarks() -> dict[str, type[Benchmark]]:
    """Every known benchmark by its name, sorted."""
    _import_all()
    return dict(sorted({benchmark.name: benchmark for benchmark in _known.values()}.items()))


def find_benchmark(name: str) -> type[Benchmark] | None:
    """The benchmark of this name, hub name or alias; None when there is none."""
    _import_all()
    return _known.get(_name_key(name))


def get_benchmark(name: str | Benchmark, mode: str | None = None) -> Benchmark:
    """The benchmark of this name, hub name or alias, in one of its modes; ConfigError with the
    nearest names when there is none.
    """
    if isinstance(name, Benchmark):
        return name
    benchmark = find_benchmark(name)
    if benchmark is None:
        raise ConfigError(unknown_name("benchmark", name, benchmarks()))
    return benchmark(mode)


def detect_benchmark(row: Row, what: str = "the data", untyped: bool = False) -> Benchmark:
    """The one benchmark whose own columns a row has; in an `untyped` one (CSV) lists stand as JSON
    text.

    Raises:
        DataError: none fits, with the columns found; or two do, with both names.
    """
    own = own_layouts(row, untyped) or own_layouts(row, untyped, general=True)
    names = [benchmark.name for benchmark in own]
    if len(own) == 1:
        return own[0]()
    if own:
        raise DataError(
            f"{what} fits {' and '.join(names)}; say which it is with --benchmark or benchmark=."
        )
    raise DataError(
        f"{what}: no benchmark format fits the columns {sorted(row)}; preferences need a prompt, "
        f"chosen and rejected. {_way_out(list(row))}"
    )


def own_layouts(row: Row, untyped: bool = False, *, general: bool = False) -> list[type[Benchmark]]:
    """The benchmarks whose own columns a row has; with `general` those for anybody's rows instead."""
    cells = {name: json_cell(value) for name, value in row.items()} if untyped else row
    columns = row.keys()
    return [
        benchmark
        for benchmark in benchmarks().values()
        if benchmark.general == general
        and benchmark.own_columns <= columns
        and benchmark().detect(cells)
    ]


def _way_out(columns: list[str]) -> str:
    """The next step for columns that no benchmark has: what they look like decides."""
    if len(columns) == 1 and (separator := next((c for c in ";\t|" if c in columns[0]), None)):
        return (
            f"The columns stand behind {separator!r}: save the file with commas, or as .tsv with "
            f"tabs."
        )
    misspelt = [
        (near[0], want)
        for want in ("chosen", "rejected")
        if want not in columns and (near := nearest(want, columns))
    ]
    if misspelt:
        return "Rename " + ", ".join(f"'{column}' to '{want}'" for column, want in misspelt) + "."
    if any(name in columns for name in (*RESPONSE_COLUMNS, *RESPONSES_COLUMNS)):
        loaded = 'create_loader(name="mine", data_source="*", config={"path": …}).run().datasamples'
        return (
            f"Answers without preferences have no benchmark: `rm-gallery score` scores them, or "
            f"reward.evaluate_batch({loaded})."
        )
    known = (
        ", ".join(f"'{name}'" for name in benchmarks())
        + "; columns of answers are compared by `rm-gallery winrate`"
    )
    return f"Say which it is with --benchmark or benchmark=, one of {known}."
