"""Equal questions are paid once: those in flight share a call, answered ones come from the cache."""

from __future__ import annotations

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.models import copy_with
from tests.faults.material import make_judge, make_samples, run, truth
from tests.support.judge_server import JudgeServer


def renamed(sample: DataSample, count: int) -> list[DataSample]:
    """Different samples with the same question: the id decides the order of the answers, so it has to stay."""
    return [copy_with(sample, metadata={"copy": k}) for k in range(count)]


def test_equal_calls_in_flight_share_one_request(server: JudgeServer) -> None:
    server.set(latency=0.3)
    samples = renamed(make_samples(1)[0], 20) + renamed(make_samples(2)[1], 20)
    ran = run(make_judge(server.base_url), samples, max_workers=40)
    assert ran.scores == truth(samples)
    assert server.stats()["requests"] == 2
    assert ran.control.calls == 2


def test_a_second_run_asks_nothing_and_another_repeat_everything(server: JudgeServer) -> None:
    judge, samples = make_judge(server.base_url), make_samples(50)
    for repeat in range(3):
        first, second = (run(judge, samples, repeat=repeat) for _ in range(2))
        assert first.scores == second.scores == truth(samples)
        assert (first.control.calls, first.control.cached) == (50, 0)
        assert (second.control.calls, second.control.cached) == (0, 50)
    assert server.stats()["requests"] == 150
    assert run(judge, samples, cache=False).control.calls == 50


def test_a_repair_is_cached_like_any_other_question(server: JudgeServer) -> None:
    server.set(behaviour=["no verdict", "<best>1</best>"])
    judge, samples = make_judge(server.base_url), make_samples(1)
    first = run(judge, samples)
    again = run(judge, samples)
    assert first.scores == again.scores
    assert (first.control.calls, again.control.calls, again.control.cached) == (2, 0, 2)
