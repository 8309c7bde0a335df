"""A continued run shows what its code says today, or refuses; and it says how much of what it kept
was looked at.

The judge answers differently each time it is asked: a figure that is the same twice was not asked
for twice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

import rm_gallery
from rm_gallery import (
    BaseLLMReward,
    BasePointWiseReward,
    BasePromptTemplate,
    ConfigError,
    DataSample,
    GradingRunner,
    OpenaiLLM,
    ParseError,
    RewardDimensionWithScore,
    RewardResult,
    WeightedSum,
)
from rm_gallery.core.model.storage import FILE_NAME, KeptReplies
from rm_gallery.core.reward import channel
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.utils.log import logger
from rm_gallery.study.grading import grade
from rm_gallery.study.rejudge import rejudge
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.support.judge_server import JudgeServer
from tests.support.judge_server_behaviours import Judgement

N, LATE = 6, "late"
"""Rows, of which the last is late: a change that concerns it alone must be seen."""
CHANGED: set[str] = set()
"""What is other code now."""
KEY = "sk-only-for-this-test"


def late(text: str) -> float:
    return float(LATE in text)


class Asks(BasePromptTemplate):
    score: float = Field(default=..., ge=0, le=10, description="score from 0 to 10")

    @classmethod
    def format(cls, answer: str, **kwargs: Any) -> str:  # type: ignore[override]
        words = "Be strict. " if "template" in CHANGED and late(answer) else ""
        return f"{words}How good is this answer?\n{answer}\n{cls.schema()}"


class Reads(Asks):
    @classmethod
    def parse(cls, text: str, *args: Any, **kwargs: Any) -> Any:
        if "unreads" in CHANGED:
            raise ParseError("There is no verdict in this.")
        found = super().parse(text, *args, **kwargs)
        return found.model_copy(update={"score": found.score + 1}) if "parser" in CHANGED else found


class Judge(BaseLLMReward, BasePointWiseReward):
    name: str = "kept_judge"
    template: type[BasePromptTemplate] = Asks

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        text = sample.output[0].answer.text
        return {"answer": text + "!" * int("before" in CHANGED and late(text))}

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = response.score + float("after" in CHANGED) * late(sample.output[0].answer.text)
        return one(self.name, score)


class Rule(BasePointWiseReward):
    name: str = "kept_rule"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return one(self.name, 1.0 + float("rule" in CHANGED) * late(sample.output[0].answer.text))


class Calls(BasePointWiseReward):
    """Code that asks a judge by itself and adds what it finds."""

    name: str = "kept_caller"
    judge: Judge

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        judged = await self.judge.async_evaluate(sample.model_copy(deep=True))
        score = self.judge.score_of_output(judged.output[0])
        assert score is not None
        return one(
            self.name, score + float("caller" in CHANGED) * late(sample.output[0].answer.text)
        )


def one(name: str, score: float) -> RewardResult:
    return RewardResult(
        name=name, details=[RewardDimensionWithScore(name=name, score=score, reason="")]
    )


def summed(llm: OpenaiLLM) -> WeightedSum:
    judged = 0.7 if "weights" in CHANGED else 0.4
    return WeightedSum(
        {"judge": Judge(llm=llm), "rule": Rule()}, weights={"judge": judged, "rule": 0.3}
    )


CHANGES: dict[str, Callable[[OpenaiLLM], Any]] = {
    "after": lambda llm: Judge(llm=llm),
    "before": lambda llm: Judge(llm=llm),
    "template": lambda llm: Judge(llm=llm),
    "parser": lambda llm: Judge(llm=llm, template=Reads),
    "rule": summed,
    "weights": summed,
    "caller": lambda llm: Calls(judge=Judge(llm=llm)),
}
PLACES = {"rule": 3, "weights": 3}
"""Scores of an answer that are held against each other: of the whole, and of each part."""
ANSWERS = [f"{LATE if k == N - 1 else 'early'} answer {k}" for k in range(N)]
ROWS = [
    {"id": f"r{k}", "prompt": f"Q{k}?", "chosen": text, "rejected": f"bad {k}"}
    for k, text in enumerate(ANSWERS)
]
ROLLOUTS = [
    {
        "messages": [
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row["chosen"]},
        ],
        "score": 1.0,
    }
    for row in ROWS
]
FIELDS = [{"id": row["id"], "query": row["prompt"], "response": row["chosen"]} for row in ROWS]


def library(reward: Any, **how: Any) -> Any:
    return [
        [reward.score_of_output(output) for output in one.output]
        for one in reward.evaluate_batch(samples(), **how)
    ]


def samples() -> list[DataSample]:
    return [sample_of(row["prompt"], row["chosen"]) for row in ROWS]


def of_winrate(report: Any) -> Any:
    return report.score, report.extra["wins"], report.extra["ties"]


DOORS: dict[str, Callable[..., Any]] = {
    "eval": lambda reward, **how: rm_gallery.evaluate(reward, ROWS, progress=False, **how).score,
    "score": lambda reward, **how: (
        score_table(reward, ROWS, "prompt", ["chosen"], progress=False, **how).score
    ),
    "winrate": lambda reward, **how: of_winrate(
        winrate(reward, ROWS, "prompt", ["chosen", "rejected"], progress=False, **how)
    ),
    "grade": lambda reward, **how: (
        grade(GradingRunner({"g": reward}, show_progress=False), FIELDS, **how).score
    ),
    "rejudge": lambda reward, **how: rejudge(reward, ROLLOUTS, progress=False, **how).new_mean,
    "library": library,
}
ANSWERS_OF = {"eval": 2, "winrate": 2}
CACHES = ("intact", "moved", "off")
TEMPERATURES = (0.0, 0.7)
ARRAY = [
    (change, door, CACHES[(i + j) % 3], TEMPERATURES[(i + i // 3 + j) % 2])
    for i, change in enumerate(CHANGES)
    for j, door in enumerate(DOORS)
]
"""Each change at each door; caches and temperatures so that all pairs occur."""


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeServer]:
    replies = itertools.count()
    with JudgeServer(
        lambda call: Judgement((1,), (float(next(replies) % 10),)), in_process=True
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    CHANGED.clear()
    yield
    CHANGED.clear()


@pytest.fixture
def told() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


class Runs:
    """One run, begun and continued under the same settings."""

    def __init__(
        self,
        judge: JudgeServer,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        cell: tuple[str, str, str, float],
    ) -> None:
        self.change, self.door, self.cache, self.temperature = cell
        self.judge, self.folder, self._monkeypatch = judge, folder / "run", monkeypatch
        self._caches = (folder / str(number) for number in itertools.count())
        self.move_cache()

    def move_cache(self) -> None:
        self._monkeypatch.setenv("RM_GALLERY_CACHE", str(next(self._caches)))

    def go(self) -> Any:
        if self.cache == "moved":
            self.move_cache()
        llm = OpenaiLLM(
            model="m", base_url=self.judge.base_url, api_key=KEY, temperature=self.temperature
        )
        reward = CHANGES[self.change](llm)
        how = {"cache": False} if self.cache == "off" else {}
        return DOORS[self.door](reward, run_dir=str(self.folder), **how)

    @property
    def compared(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.folder / "summary.json").read_text())["compared"]
        return found

    @property
    def asked(self) -> int:
        count: int = self.judge.stats(detail=False)["requests"]
        return count

    @property
    def places(self) -> int:
        if self.door == "grade":  # a grader is compared as a whole
            return N
        return N * ANSWERS_OF.get(self.door, 1) * PLACES.get(self.change, 1)


@pytest.mark.parametrize("cell", ARRAY, ids=lambda cell: "-".join(map(str, cell)))
def test_no_old_figure_is_shown_as_todays(
    cell: tuple[str, str, str, float],
    judge: JudgeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Runs(judge, tmp_path, monkeypatch, cell)
    first, asked = run.go(), run.asked
    assert run.go() == first and run.asked == asked, "a finished run asks nothing"
    assert run.compared == {"records": N, "of": N, "scores": run.places}
    CHANGED.add(run.change)
    with pytest.raises(ConfigError, match="holds (results of something else|a different run)"):
        run.go()
    assert run.asked == asked


CHANNELS = ("schema", "tool", "text", "logprobs")


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_way_to_ask_is_compared(channel: Any, plain: Runs) -> None:
    """Also with votes, each of which is a request of its own."""
    llm = OpenaiLLM(model="m", base_url=plain.judge.base_url, api_key=KEY, temperature=0.7)
    how = {"run_dir": str(plain.folder), "repeat": 3}
    first, asked = library(Judge(llm=llm, channel=channel), **how), plain.asked
    assert library(Judge(llm=llm, channel=channel), **how) == first and plain.asked == asked
    assert plain.compared == {"records": N, "of": N, "scores": N}
    CHANGED.add("after")
    with pytest.raises(ConfigError, match="holds results of something else"):
        library(Judge(llm=llm, channel=channel), **how)


@pytest.mark.parametrize("before", [True, False])
def test_a_reader_that_reads_nothing_any_more_or_only_now_is_other_code(
    before: bool, plain: Runs
) -> None:
    plain.change = "parser"
    CHANGED.update({"unreads"} if before else ())
    plain.go()
    CHANGED.symmetric_difference_update({"unreads"})
    with pytest.raises(ConfigError, match="holds results of something else"):
        plain.go()


def test_shards_put_together_are_compared_from_the_replies_of_each(
    judge: JudgeServer, tmp_path: Path
) -> None:
    def go(**shard: Any) -> Any:
        llm = OpenaiLLM(model="m", base_url=judge.base_url, api_key=KEY, temperature=0.7)
        folder = str(tmp_path / "run")
        return rm_gallery.evaluate(Judge(llm=llm), ROWS, run_dir=folder, progress=False, **shard)

    for shard in ("1/2", "2/2"):
        go(shard=shard)
    go()
    compared = json.loads((tmp_path / "run" / "summary.json").read_text())["compared"]
    assert compared == {"records": N, "of": N, "scores": 2 * N}
    CHANGED.add("after")
    with pytest.raises(ConfigError, match="holds results of something else"):
        go()


@pytest.fixture
def plain(judge: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(judge, tmp_path, monkeypatch, ("after", "library", "off", 0.7))


def without_marks(folder: Path) -> None:
    """As an earlier version left a run: no replies, and records that do not speak of any."""
    (folder / FILE_NAME).unlink()
    path = folder / "results.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["replies"]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_folder_without_replies_goes_on_and_vouches_for_nothing(
    plain: Runs, told: list[str]
) -> None:
    first = plain.go()
    without_marks(plain.folder)
    CHANGED.add("after")
    assert plain.go() == first
    assert plain.compared == {"records": 0, "of": N, "scores": 0, "missed": N}
    said = told[-1]
    assert f"0 of {N} kept records were compared with today's code, by 0 scores" in said
    assert f"{N} more scores could not be" in said and "run.force_new=true" in said


def test_a_folder_that_lost_its_replies_is_refused(plain: Runs) -> None:
    plain.go()
    path = plain.folder / FILE_NAME
    for kept in (path.read_bytes().splitlines(keepends=True)[:4], []):
        path.write_bytes(b"".join(kept))
        with pytest.raises(ConfigError, match="replies-1.log has lost .* run.force_new"):
            plain.go()


def test_no_secret_is_kept_beside_a_reply(plain: Runs) -> None:
    """An endpoint that echoes the key it was sent."""
    with JudgeServer(lambda call: f"<score>5</score> {KEY}", in_process=True) as echoing:
        plain.judge, plain.change = echoing, "parser"
        assert plain.go() == plain.go()
    assert plain.compared["scores"] == N
    assert all(
        KEY.encode() not in path.read_bytes() for path in plain.folder.iterdir() if path.is_file()
    )


def test_a_rule_beside_a_judge_vouches_for_itself_alone(
    judge: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Runs(judge, tmp_path, monkeypatch, ("rule", "library", "intact", 0.0))
    run.go()
    without_marks(run.folder)
    run.go()
    assert run.compared == {"records": 0, "of": N, "scores": N, "missed": 2 * N}


def test_a_question_with_two_answers_is_no_sign_of_other_code(
    plain: Runs, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a temperature a judge says one thing of one row and another of an equal one."""
    same = [{**row, "chosen": ANSWERS[k % 4]} for k, row in enumerate(ROWS)]
    monkeypatch.setitem(globals(), "ROWS", same)
    assert plain.go() == plain.go()
    assert plain.compared == {"records": 2, "of": N, "scores": 2, "missed": 4}
    assert f"2 of {N} kept records" in told[-1] and "4 more scores could not be" in told[-1]


def test_an_endpoint_that_refuses_a_schema_is_compared_by_another_process(
    plain: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JudgeServer(
        lambda call: Judgement((1,), (5.0,)), in_process=True, lacks=("schema", "tools")
    ) as refusing:
        plain.judge = refusing
        plain.go()
        channel.forget()
        plain.go()
    assert plain.compared == {"records": N, "of": N, "scores": N}


def test_a_reply_is_kept_before_anything_is_made_of_it(plain: Runs) -> None:
    seen: list[int] = []

    class Looks(Judge):
        name: str = "kept_looks"

        def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
            seen.append(len(lines_of(plain.folder / FILE_NAME)))
            return one(self.name, response.score)

    llm = OpenaiLLM(model="m", base_url=plain.judge.base_url, api_key=KEY, temperature=0.7)
    library(Looks(llm=llm), run_dir=str(plain.folder), max_workers=1)
    assert seen == list(range(1, N + 1))


def test_a_run_begun_by_an_earlier_version_goes_on(plain: Runs) -> None:
    first = plain.go()
    log = plain.folder / FILE_NAME
    held = [line.split(b" ", 4) for line in lines_of(log)]
    lines = [b'{"key":"%s","reply":%s}\n' % (key, reply) for _, key, _, _, reply in held]
    (plain.folder / "replies.jsonl").write_bytes(b"".join(lines))
    log.unlink()
    assert plain.go() == first and plain.compared["scores"] == N
    assert not log.exists()


def lines_of(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line]


def test_replies_survive_a_cut_at_every_byte(tmp_path: Path) -> None:
    path, keys = tmp_path / FILE_NAME, [f"{k}" * 64 for k in (1, 2, 3)]
    replies = [b'{"a":"1"}', b"\x00\xffbytes", b"[1]"]
    whole = KeptReplies(path.parent)
    for key, reply in zip(keys, replies, strict=True):
        whole.put(key, reply)
        whole.put(key, reply)
    whole.close()
    data = path.read_bytes()
    ends = [
        place + 1 for place in range(1, len(data)) if data[place] == ord("\n") != data[place - 1]
    ]
    assert len(ends) == 3, "the same reply is kept once"
    for cut in range(ends[0] - 1, len(data) + 1):
        path.write_bytes(data[:cut])
        kept = KeptReplies(path.parent)
        n = sum(end <= cut for end in ends)
        assert [kept.get(key) for key in keys] == [*replies[:n], *[None] * (3 - n)]
        if cut % 7 == 0:
            kept.put(keys[2], replies[2])
            assert kept.get(keys[2]) == replies[2] == KeptReplies(path.parent).get(keys[2])
        kept.close()


def test_two_replies_to_one_request_are_none(tmp_path: Path) -> None:
    path, key = tmp_path / FILE_NAME, "ab" * 32
    kept = KeptReplies(path.parent)
    for reply in (b"[1]", b"[2]", b"[3]"):
        kept.put(key, reply)
        assert (kept.get(key) is None) == (reply != b"[1]")
    assert KeptReplies(path.parent).get(key) is None and len(lines_of(path)) == 2


def test_replies_of_earlier_versions_and_of_parts_are_read(tmp_path: Path) -> None:
    """They stood in lines of JSON; both files of a folder, and those of its parts, are one store."""
    keys = [f"{k}" * 64 for k in range(8)]
    lines = [
        f'{{"key":"{keys[0]}","reply":{{"a":[1, 2]}}}}',
        f'{{"key":"{keys[1]}","base64":"AP9i"}}',
        f'{{"key":"{keys[2]}","reply":null}}',
        f'{{"key":"{keys[3]}","reply":[3]}}',
        f'{{"key":"{keys[4]}","reply":[4]}}',
        f'{{"key":"{keys[5]}","reply":[5',
    ]
    (tmp_path / "replies.jsonl").write_text("\n".join(lines))
    part = tmp_path / "part"
    with closing(KeptReplies(part)) as there:
        empty = [there.is_empty]
        assert not part.exists()
        for key, reply in zip(keys[3:7], (b"[3]", b"[0]", None, b"[6]"), strict=True):
            there.put(key, reply)
        empty.append(there.is_empty)
        assert empty == [True, False]
    found = [b'{"a":[1, 2]}', b"\x00\xffb", None, b"[3]", None, None, b"[6]", None]
    for _ in range(2):
        with closing(KeptReplies(tmp_path, [part])) as kept:
            assert [kept.get(key) for key in keys] == found
            assert [kept.knows(key) for key in keys] == [True] * 7 + [False] and not kept.is_empty
            kept.put(keys[0], found[0])
        assert not (tmp_path / FILE_NAME).exists(), "what is known is not kept once more"
    with closing(KeptReplies(tmp_path, [part])) as kept:
        kept.put(keys[0], b"[0]")
        kept.put(keys[7], b"[7]")
        assert (kept.get(keys[0]), kept.get(keys[7])) == (None, b"[7]")


def test_a_run_that_cannot_read_or_keep_a_reply_says_so(tmp_path: Path) -> None:
    for name in (FILE_NAME, "replies.jsonl"):
        for number, folder in enumerate(("part", "")):
            there = tmp_path / f"{name}{number}" / folder / name
            there.mkdir(parents=True)
            with pytest.raises(ConfigError, match="cannot be used.*run the same command") as told:
                KeptReplies(tmp_path / f"{name}{number}", [tmp_path / f"{name}{number}" / "part"])
            assert str(told.value).startswith(f"{there} ")
    with closing(KeptReplies(tmp_path)) as kept:
        (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ConfigError, match=f"{FILE_NAME} cannot be used.*run the same command"):
            kept.put("ab" * 32, b"[1]")
    assert not (tmp_path / "elsewhere").exists()


def test_replies_of_parts_outlive_a_log_that_is_made_anew(tmp_path: Path) -> None:
    keys = [f"{k}" * 64 for k in range(4)]
    with closing(KeptReplies(tmp_path / "part")) as there:
        there.put(keys[0], b"[0]")
    with closing(KeptReplies(tmp_path, [tmp_path / "part"])) as kept:
        kept.put(keys[1], b"[1]")
        with closing(KeptReplies(tmp_path / "other")) as other:
            other.put(keys[2], b"[2]")
        (tmp_path / "other" / FILE_NAME).replace(tmp_path / FILE_NAME)
        assert [kept.get(key) for key in keys] == [b"[0]", None, b"[2]", None]
        kept.put(keys[3], b"[3]")
        (tmp_path / FILE_NAME).rename(tmp_path / "away")
        assert [kept.get(key) for key in keys] == [b"[0]", None, None, None]
        kept.put(keys[1], b"[1]")
        assert kept.get(keys[1]) == b"[1]"
