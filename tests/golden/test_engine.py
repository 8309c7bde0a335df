"""What the engine makes of headers, prices, failures, rates and lines of a run, as golden files
say.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import random
import tempfile
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import (
    Budget,
    ConfigError,
    FakeLLM,
    GraderRegistry,
    GradingRunner,
    ProviderError,
    RewardRegistry,
    Score,
)
from rm_gallery.core.engine import progress
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.folder import RunStore, differences
from rm_gallery.core.engine.pool import describe_exit
from rm_gallery.core.model.budget import Price, PriceTable, Usage
from rm_gallery.core.model.client import with_retries
from rm_gallery.core.model.limits import Endpoint, FailFast, RateLimit, RetryPolicy, Visit
from rm_gallery.core.model.storage import canonical_key
from rm_gallery.core.model.transport import parse_retry_after
from rm_gallery.core.reward.judge import BaseStepWiseRubricReward
from rm_gallery.core.score import score_of_error
from rm_gallery.core.utils import errors
from rm_gallery.core.utils.errors import BudgetExceeded, DeadlineExceeded
from rm_gallery.core.utils.shown import redact
from rm_gallery.study.estimate import Forecast, PredictionInterval
from tests.engine.virtual_time import now, run_virtual
from tests.golden.golden import Line, kinds, unnamed
from tests.golden.test_rules import text_of

golden = kinds("engine")


EVENING = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


class Longest(random.Random):
    """Always draws the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return b


def failure(spec: str) -> Exception:
    """`KIND STATUS RETRY_AFTER` as the error of a call."""
    kind, status, retry_after = (*spec.split(), "-", "-")[:3]
    if kind == "bug":
        return KeyError(spec)
    known = {"status": None if status == "-" else int(status), "retry_after": None}
    if retry_after != "-":
        known["retry_after"] = float(retry_after)  # type: ignore[assignment]
    return ProviderError(spec, kind=kind, **known)  # type: ignore[arg-type]  # kinds by name


@golden("seconds")
def test_retry_after(line: Line) -> Line:
    return {"seconds": parse_retry_after(line["headers"], EVENING)}


@golden("end", "made", "waits", "seconds")
def test_attempts(line: Line) -> Line:
    """The attempts at one call, where the longest jitter is drawn each time."""
    waits = list[float]()
    made = 0

    async def call() -> str:
        nonlocal made
        outcome = line["outcomes"][min(made, len(line["outcomes"]) - 1)]
        made += 1
        await asyncio.sleep(line.get("latency", 0))
        if outcome != "ok":
            raise failure(outcome)
        return "ok"

    async def main() -> tuple[str, float]:
        began, endpoint, patience = now(), Endpoint(8, clock=now), line.get("max_outage", 0.0)
        endpoint.answered = line.get("answered", False)
        for end in line.get("before", ()):
            turn = Visit(endpoint, patience=patience)
            endpoint.enter(turn)
            endpoint.leave(turn, end)
        deadline = Deadline(line["deadline"], clock=now) if "deadline" in line else None
        policy = RetryPolicy(rng=Longest(), **line.get("policy", {}))
        try:
            end = await with_retries(
                call,
                policy,
                endpoint,
                deadline=deadline,
                patience=patience,
                on_retry=lambda _, __, wait: waits.append(wait),
            )
        except (ProviderError, DeadlineExceeded, KeyError) as error:
            end = f"{type(error).__name__}: {error}"
        return end, now() - began

    end, seconds = run_virtual(main())
    return {"end": end, "made": made, "waits": waits, "seconds": seconds}


@golden("trips_at", "message")
def test_fail_fast(line: Line) -> Line:
    tracker = FailFast(line["limit"])
    tripped = []
    for number, spec in enumerate((spec for spec, times in line["calls"] for _ in range(times)), 1):
        if spec == "ok":
            tracker.success()
        elif tracker.failure(failure(spec)):
            tripped.append(number)
    return {"trips_at": tripped, "message": tracker.message}


@pytest.mark.long("much work")
@golden("price", "cost", "error")
def test_prices(line: Line) -> Line:
    """The price of a model in a file, and of a usage; or what is wrong with the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.yaml"
        path.write_bytes(text_of(line["file"]).encode(line.get("encoding", "utf-8")))
        try:
            table = PriceTable.from_yaml(path)
        except ConfigError as error:
            return {
                "error": str(error)
                .replace(folder, "")
                .partition("YAML:")[0]
                .partition("position")[0]
            }
    price = table.find(line["model"])
    found = None if price is None else [price.input, price.output, price.cached_input]
    return {"price": found, "cost": table.cost(line["model"], Usage(**line.get("usage", {})))}


@golden("sum")
def test_sums_of_usage(line: Line) -> Line:
    total = Usage()
    for usage in line["usages"]:
        total.add(Usage(**usage))
    return {"sum": {**vars(total), "total": total.total_tokens, "empty": total.empty}}


@golden("estimate", "error")
def test_estimates(line: Line) -> Line:
    usages = [Usage(**usage) for usage, times in line["probed"] for _ in range(times)]
    try:
        found = Forecast.from_probe(
            usages, line["seconds"], line["n_total"], concurrency=line.get("concurrency", 1)
        )
    except ConfigError as error:
        return {"error": str(error)}
    wanted = ("samples", "calls", "input_tokens", "output_tokens", "cost", "seconds")
    values = {name: getattr(found, name) for name in wanted}
    return {
        "estimate": {
            name: [value.mean, value.low, value.high]
            if isinstance(value, PredictionInterval)
            else value
            for name, value in values.items()
        }
    }


@golden("made", "highest", "spent", "message")
def test_budgets(line: Line) -> Line:
    """Calls, so many at a time, until the budget refuses: how many, the most in flight where that
    is asked, what they cost.
    """
    prices = PriceTable({"judge": Price(1.0, 4.0, 0.5)})
    budget = Budget(prices=prices, spent=Usage(**line.get("before", {})), **line["limits"])
    claims, highest, made = set[int](), 0, 0

    async def worker() -> None:
        nonlocal highest, made
        while made < 100_000:
            try:
                claim = budget.try_reserve("judge", 60, line.get("most"))
                claim = claim or await budget.reserve("judge", 60, line.get("most"))
            except BudgetExceeded:
                return
            made += 1
            claims.add(id(claim))
            highest = max(highest, len(claims))
            await asyncio.sleep(0.1)
            claims.remove(id(claim))
            budget.settle(claim, Usage(line["usage"][0], line["usage"][1], calls=1), "judge")

    async def main() -> None:
        await asyncio.gather(*(worker() for _ in range(line.get("workers", 1))))

    run_virtual(main())
    spent = [budget.spent.calls, budget.spent.total_tokens, budget.spent.cost]
    told = {
        "highest": highest if line.get("workers") == 64 else None,
        "message": budget.message if line.get("tell") else None,
    }
    return {"made": made, "spent": spent, **told}


@golden("starts")
def test_rates(line: Line) -> Line:
    """When calls may start: several that are asked for at once, or step by step."""

    async def main() -> list[float | None]:
        began, rate, times = now(), RateLimit(*line["per_minute"], clock=now), list[float | None]()
        waiting: list[asyncio.Future[None]] = []

        async def call(number: int, tokens: int, run: str) -> None:
            if not rate.enter(tokens):
                await rate.wait(tokens, run)
            times[number] = round(now() - began, 6)

        for what, *given in line.get(
            "steps", [["ask", tokens] for tokens in line.get("tokens", ())]
        ):
            if what == "ask":
                usual: list[Any] = [0, "", 1]
                tokens, run, count = given + usual[len(given) :]
                for _ in range(count):
                    times.append(None)
                    waiting.append(asyncio.ensure_future(call(len(times) - 1, tokens, run)))
                await asyncio.sleep(0)
            elif what == "sleep":
                await asyncio.sleep(given[0])
            elif what == "cancel":
                for number in given:
                    waiting[number].cancel()
            else:
                getattr(rate, what)(*given)  # settle, set
        await asyncio.gather(*waiting, return_exceptions=True)
        return times

    return {"starts": run_virtual(main())}


@golden("seen")
def test_endpoint(line: Line) -> Line:
    """An endpoint step by step: after each of them its limit, the calls in flight and waiting, and
    its state.
    """

    async def main() -> list[list[Any]]:
        given = dict(line["endpoint"])
        patience = given.pop("max_outage", 300.0)
        bound, seen = Endpoint(clock=now, name="it", **given), list[list[Any]]()
        waiting = list[asyncio.Future[None]]()
        inside, leases, calls = list[Visit](), list[Any](), dict[int, Visit]()

        def enter() -> None:
            turn = Visit(bound, patience=patience)
            if bound.enter(turn):
                inside.append(turn)

        async def wait(began: float | None) -> None:
            turn = Visit(bound, patience=patience)
            if began is not None:
                turn.began = began
            if not bound.enter(turn):
                await bound.wait(turn)
            inside.append(turn)

        for what, *arguments in line["steps"]:
            if what == "enter":
                for _ in range(arguments[0]):
                    enter()
            elif what == "wait":
                began = 0.0 if arguments[1:] else None  # it failed before
                waiting += [asyncio.ensure_future(wait(began)) for _ in range(arguments[0])]
            elif what == "sleep":
                await asyncio.sleep(arguments[0])
            elif what == "cancel":
                waiting.pop(*arguments).cancel()
            elif what == "lease":
                leases.append(bound.lease(arguments[0]))
            elif what == "leave":
                leases.pop()()
            elif what == "turn":  # so many are served, and others come
                for _ in range(arguments[0]):
                    bound.leave(inside.pop(0))
                    enter()
            else:
                for number in range(arguments[0]):
                    more = {"why": "w.", **(arguments[1:] or [{}])[0]}
                    visit = inside.pop(0)
                    same = calls.setdefault(more.pop("call", number), visit)
                    if same is not visit and same not in bound._visits:
                        # the next attempt of a call that was here before
                        same.sent = visit.sent
                        bound._visits = bound._visits - {visit} | {same}
                        visit = same
                    bound.leave(visit, what, **more)
            for _ in range(3):
                await asyncio.sleep(0)
            seen.append([bound.limit, bound.in_flight, bound.waiting, bound.state])
        errors = {
            str(waiter.exception())
            for waiter in waiting
            if waiter.done() and not waiter.cancelled()
        }
        for waiter in waiting:
            waiter.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [*seen, *sorted(errors - {"None"})]  # type: ignore[list-item]

    return {"seen": run_virtual(main())}


@golden("redacted")
def test_redacted(line: Line) -> Line:
    return {"redacted": redact(line["given"])}


@golden("lines")
def test_run_differences(line: Line) -> Line:
    return {"lines": differences(line["old"], line["new"])}


@golden("found", "damaged", "kept")
def test_results(line: Line) -> Line:
    """What a start finds in a folder with these lines, and what it leaves of them."""
    with tempfile.TemporaryDirectory() as folder:
        RunStore(folder, {}).release()
        path = Path(folder) / "results.jsonl"
        path.write_bytes("".join(text * times for text, times in line["content"]).encode("latin-1"))
        with RunStore(folder, {}) as store:
            found = store.finished(line.get("reuse", ("scored", "unscored")))
            return {
                "found": {key: record.get("score") for key, record in found.items()},
                "damaged": store.damaged,
                "kept": path.stat().st_size,
            }


@golden("counts", "differs")
def test_run_folders(line: Line) -> Line:
    """What a run makes of a folder with these records, and where a new folder holds other ones."""
    judge, items = {"llm": FakeLLM(reply=line.get("reply", ""))}, line["items"]

    def run(folder: str) -> list[Any]:
        if "graders" in line:
            made = {
                name: GraderRegistry.create(
                    name, **(judge if GraderRegistry.get(name).judged else {})
                )
                for name in line["graders"]
            }
            GradingRunner(made, show_progress=False, run_dir=folder).run(items)
        else:
            kind = (
                BaseStepWiseRubricReward
                if line["reward"] == "steps"
                else RewardRegistry.get(line["reward"])
            )
            kind(**(judge if kind.judged else {})).evaluate_batch(
                items, run_dir=folder, progress=False
            )
        found = sorted(
            map(json.loads, (Path(folder) / "results.jsonl").read_text().splitlines()),
            key=itemgetter("id"),
        )
        for record in found:
            record.pop("asked", None)  # of the prompts, which change
            for result in record.get("results", {}).values():
                result.pop("usage", None)
        return found

    with tempfile.TemporaryDirectory() as folder:
        fresh = run(folder)
        (Path(folder) / "results.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in line["records"])
        )
        run(folder)
        counts = json.loads((Path(folder) / "summary.json").read_bytes())["samples"]
    differs = [[old, new] for old, new in zip_longest(line["records"], fresh) if old != new]
    return {
        "counts": {name: count for name, count in counts.items() if count},
        "differs": differs or None,
    }


@golden("equal")
def test_cache_keys(line: Line) -> Line:
    return {"equal": canonical_key(line["a"]) == canonical_key(line["b"])}


@golden("line", "most_often")
def test_progress(line: Line) -> Line:
    """The line that is shown, and what is said of failures."""
    # the lines keep the name that summaries and the progress line have for what a gate skips
    counts = {
        ("skipped_by_gate" if k == "spared" else k): n for k, n in line.get("control", {}).items()
    }
    clock, control = [100.0], RunControl(**counts)
    control.usage = Usage(**line.get("usage", {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        shown = progress.Progress(control, line.get("total"), True, line.get("label", "run"))
        shown.done, shown.reused = line["done"], line.get("reused", 0)
        for *outcomes, times in line.get("outcomes", ()):
            for _ in range(times):
                shown.count(
                    [
                        Score(None, reason * 2, status=status, code=reason)
                        for status, reason in outcomes
                    ]
                )
        clock[0] += line["seconds"]
        failed = shown.failed or None
        return {
            "line": shown.facts(line.get("width")),
            "most_often": failed and shown.most_common(line.get("said", "")),
        }


@golden("outcome", "raised")
def test_outcomes(line: Line) -> Line:
    """What a judgement that raised ends as; an error of the run is raised again."""
    kind, arguments = line["error"]
    cls = getattr(errors, kind, None) or getattr(builtins, kind)
    try:
        found: Score[Any] = score_of_error(cls(*arguments, **line.get("more", {})))
    except ConfigError as error:
        return {"raised": str(error)}
    return {"outcome": [found.status, found.code, found.reason]}


@golden("words")
def test_exits(line: Line) -> Line:
    return {"words": describe_exit(line["code"])}


def test_every_file_has_its_test() -> None:
    assert unnamed("engine", globals()) == {"every_file_has_its_test"}
