"""Deployed evaluators over HTTP: a folder of metrics to its end, and code that loops, allocates,
crashes or reaches out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rm_gallery.evaluation import Store, create_evaluation
from rm_gallery.evaluation.bundle import bundle_folders
from rm_gallery.serve.client import RewardClient
from tests.support.serving import Serving
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.system("bubblewrap")
RELEVANCE = """
from rm_gallery import EvaluateResult, MetricResult, reward_function

from helper import words

@reward_function
def evaluate(messages, **kwargs):
    asked, said = words(messages[-2].content), words(messages[-1].content)
    shared = len(asked & said)
    overlap = MetricResult(score=shared / len(asked), reason=f"{shared} of {len(asked)} words")
    direct = MetricResult(score=0.2 if "answer" in said else 0.0, reason="looks for the word answer")
    metrics = {"overlap": overlap, "direct": direct}
    return EvaluateResult(score=overlap.score + direct.score, reason="relevance", metrics=metrics)
"""
TURNS = [
    ("name three colours of autumn", "brown is one of them"),
    ("which sea is that", "no idea"),
    ("count all trees", "the answer: seven trees"),
]
SCORES = [1 / 5, 0.0, 1 / 3 + 0.2]
SAMPLES = [
    {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
    for asked, said in TURNS
]
HEAD = (
    "def evaluate(messages, **kwargs):\n    text = messages[-1]['content'] if "
    "isinstance(messages[-1], dict) else messages[-1].content\n"
)
EVIL = {
    "loops": "    while True: pass\n",
    "allocates": "    return len(bytearray(4 << 30)) / 1e9\n",
    "exits": "    import os; os._exit(0)\n",
    "kills_itself": "    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n",
    "kills_all": "    import os, signal; os.kill(-1, signal.SIGKILL)\n    return 1.0\n",
    "forks": "    import os\n    for _ in range(10000): os.fork() or os._exit(0)\n    return 1.0\n",
    "prints": "    print('x' * (1 << 28)); return 1.0\n",
    "raises": "    raise RuntimeError('sk-secret-of-the-code')\n",
    "nan": "    return float('nan')\n",
    "large": "    return {'score': 1.0, 'reason': 'x' * (64 << 20)}\n",
    "text": "    return 'good'\n",
}
"""Code that breaks: whatever it does, it costs its own request."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_bubblewrap()
    folder = tmp_path_factory.mktemp("deployed")
    metric = folder / "metrics" / "relevance"
    metric.mkdir(parents=True)
    (metric / "main.py").write_text(RELEVANCE, encoding="utf-8")
    (metric / "helper.py").write_text(
        "import re\ndef words(text):\n    return set(re.findall(r'\\w+', text))\n"
    )
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    with Store.open(folder / "store.db") as opened:
        create_evaluation(
            "relevance-evaluator", [f"relevance={folder / 'metrics' / 'relevance'}"], store=opened
        )
        opened.save(
            "sleeps",
            bundle_folders(
                code="import time\n" + HEAD + "    time.sleep(float(text)); return 1.0\n"
            ),
        )
        for name, body in EVIL.items():
            opened.save(name, bundle_folders(code=HEAD + body))
        yield opened


@pytest.fixture(scope="module")
def server(folder: Path, store: Store) -> Iterator[Serving]:
    with Serving(
        "--store", str(folder / "store.db"), "--deadline", "30", "--workers", "8", cwd=folder
    ) as running:
        yield running


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]}


PATH = "/v1/evaluations/relevance-evaluator"


@pytest.mark.parametrize(
    "more", [{}, {"ground_truth": None, "kwargs": {"x": 1}}, {"x": 1, "tools": []}]
)
def test_a_sample_gets_its_score_with_both_metrics(server: Serving, more: Any) -> None:
    for path in (PATH, f"{PATH}/evaluate"):
        found = httpx.post(server.url + path, json={**SAMPLES[0], **more}, timeout=60).json()
        assert (found["score"], found["is_score_valid"], found["reason"], found["error"]) == (
            0.2,
            True,
            "relevance",
            None,
        )
        assert found["metrics"] == {
            "overlap": {"score": 0.2, "is_score_valid": True, "reason": "1 of 5 words"},
            "direct": {"score": 0.0, "is_score_valid": True, "reason": "looks for the word answer"},
        }


def test_a_batch_and_the_servers_own_format_say_the_same(server: Serving) -> None:
    batch = httpx.post(
        f"{server.url}{PATH}/batch", json=[*SAMPLES, {"messages": 3}], timeout=60
    ).json()
    assert [each["score"] for each in batch] == [*SCORES, None]
    assert "messages" in batch[3]["error"]
    own = httpx.post(
        f"{server.url}{PATH}/outcome/batch", json={"items": SAMPLES}, timeout=60
    ).json()["results"]
    assert [each["score"] for each in own] == SCORES
    rm = {"prompt": SAMPLES[0]["messages"][:-1], "response": SAMPLES[0]["messages"][-1]["content"]}
    assert httpx.post(f"{server.url}{PATH}/rm", json=rm, timeout=60).json() == SCORES[0]


@pytest.mark.smoke("deployed evaluators")
def test_the_short_path_is_that_of_the_only_evaluator(server: Serving, folder: Path) -> None:
    several = httpx.post(f"{server.url}/evaluate", json=SAMPLES[0], timeout=60)
    assert several.status_code == 404 and "evaluator allocates" in several.text
    url = str(folder / "one.db")
    with Store.open(url) as alone:
        create_evaluation(
            "relevance-evaluator", [f"relevance={folder / 'metrics' / 'relevance'}"], store=alone
        )
    with Serving("--store", url, cwd=folder) as running:
        for path in ("/evaluate", "/reward"):
            assert (
                httpx.post(running.url + path, json=SAMPLES[0], timeout=60).json()["score"]
                == SCORES[0]
            )
        assert (
            RewardClient(running.url).score_batch("evaluator:relevance-evaluator", SAMPLES)
            == SCORES
        )


def test_code_that_breaks_costs_its_request_alone(server: Serving) -> None:
    async def go() -> dict[str, httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=90) as client:
            more: Any = {"json": said("x"), "headers": {"X-Timeout-Seconds": "6"}}
            asked = [client.post(f"/v1/evaluations/{name}", **more) for name in EVIL]
            tasks = asyncio.gather(*asked)
            beside = 0
            while not tasks.done():
                reply = await client.post(PATH, json=SAMPLES[0])
                assert reply.json()["score"] == SCORES[0]
                beside += not tasks.done()
                await asyncio.sleep(0.1)
                assert beside or not tasks.done(), "nobody was answered while code broke"
            return dict(zip(EVIL, await tasks, strict=True))

    broken = asyncio.run(go())
    for name, reply in broken.items():
        found = reply.json()
        assert reply.status_code in (200, 504), (name, reply.text)
        assert (found["score"], found["is_score_valid"]) == (None, False), (name, found)
        assert found["error"], (name, found)
        assert len(reply.content) < 100_000 and "Traceback" not in reply.text
    assert broken["loops"].json()["error"].startswith("deadline")
    assert RewardClient(server.url).healthy()


@pytest.mark.long("a server process")
def test_a_new_version_is_served_without_a_gap(server: Serving, store: Store) -> None:
    def now() -> Any:
        return httpx.post(f"{server.url}/v1/evaluations/changing", json=said("x"), timeout=60)

    unknown = now()
    assert (
        unknown.status_code == 404
        and "store.db" not in unknown.text
        and "relevance" not in unknown.text
    )
    for score in (0.25, 0.75):
        store.save(
            "changing",
            bundle_folders(code=f"def evaluate(messages, **kwargs):\n    return {score}\n"),
            force=True,
        )
        end = time.monotonic() + 10
        while (reply := now()).status_code != 200 or reply.json()["score"] != score:
            assert time.monotonic() < end, reply.text
            assert reply.status_code == (404 if score == 0.25 else 200)
            time.sleep(0.1)
    store.delete("changing")
    end = time.monotonic() + 10
    while now().status_code != 404:
        assert time.monotonic() < end


@pytest.mark.long("a server process")
def test_a_drain_loses_no_request(folder: Path, store: Store) -> None:
    with Serving("--store", str(folder / "store.db"), cwd=folder) as running:
        assert (
            httpx.post(
                f"{running.url}/v1/evaluations/sleeps", json=said("0"), timeout=60
            ).status_code
            == 200
        )

        async def go() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
                asked = [
                    asyncio.ensure_future(client.post("/v1/evaluations/sleeps", json=said("1.5")))
                    for _ in range(8)
                ]
                await asyncio.sleep(0.7)
                running.terminate()
                return list(await asyncio.gather(*asked))

        replies = asyncio.run(go())
        assert [reply.json()["score"] for reply in replies] == [1.0] * 8
        assert running.ended() == 0
        assert b"Traceback" not in running.said
