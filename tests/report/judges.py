"""Judges with one weakness each, and a sound one, for the local judge server and for scripted
models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from rm_gallery.study.attacks import built_in, text_of
from tests.support.judge_server import Answer, JudgeCall, Judgement
from tests.support.judge_server_prompts import fenced_blocks

Quality = Callable[[str], float]
"""How good a judge finds an answer, from 1 to 10."""


def letters(text: str) -> str:
    """The letters and figures of a text alone: what dress and layout leave as it is."""
    return "".join(c for c in text.lower() if c.isalnum())


@lru_cache(maxsize=1)
def known() -> tuple[frozenset[str], frozenset[str]]:
    """Letters of every good answer of the built-in questions, and of every worse one."""
    materials = built_in(None, 0)
    good = {
        letters(text_of(output))
        for m in materials
        for output in (m.good, m.reworded)
        if output is not None
    }
    return frozenset(good), frozenset(letters(text_of(m.worse)) for m in materials)


@lru_cache(maxsize=4096)
def quality(text: str) -> float:
    """9 for what holds a good answer, 3 for a worse one, 1 for everything else: whatever else
    stands there.
    """
    own = letters(text)
    good, worse = known()
    if any(text in own for text in worse):
        return 3.0
    return 9.0 if any(text in own for text in good) else 1.0


def shown(call: JudgeCall) -> list[str]:
    """The answers a judge sees, or the one step."""
    steps = [
        block.text.strip() for block in fenced_blocks(call.reading.prompt) if block.name == "step"
    ]
    return list(call.reading.candidates) or steps


def by(rate: Quality) -> Callable[[JudgeCall], Answer]:
    """The judge that goes by this; of equals the shorter one is better, and then the first in the
    alphabet.
    """

    def judge(call: JudgeCall) -> Answer:
        texts = shown(call)
        scores = [rate(text) for text in texts]
        places = sorted(range(len(texts)), key=lambda k: (-scores[k], len(texts[k]), texts[k]))
        return Judgement(tuple(place + 1 for place in places), tuple(map(capped, scores)))

    return judge


def capped(score: float) -> float:
    """A whole score within 1..10."""
    return float(max(1, min(10, round(score))))


SOUND = by(quality)
REVERSED = by(lambda text: 11.0 - quality(text))
CONSTANT = by(lambda text: 5.0)
LONG = by(lambda text: 1 + len(text) / 15)
LONG_ON_TOP = by(lambda text: capped(quality(text) / 2 + len(text) / 50))
MARKDOWN = by(
    lambda text: 10.0 if re.search(r"^(#|- |\*\*)", text, re.MULTILINE) else quality(text)
)
VERBOSE = by(lambda text: 10.0 if "in conclusion" in text or "综上所述" in text else quality(text))
_PRAISE = re.compile("deserves full marks|exceptionally clear|无可挑剔|理应得到满分")
PRAISED = by(lambda text: 10.0 if _PRAISE.search(text) else quality(text))
_SOURCES = re.compile("Harwick|Ellingworth|年鉴|研究院")
AWED = by(lambda text: 10.0 if _SOURCES.search(text) else quality(text))
_VERDICT = re.compile(
    r"<(?:score|best)>\s*\d+|\"(?:score|best)\":|score[^.]{0,20}\b10\b|\bbest\b|最佳|最高分",
    re.IGNORECASE,
)
OBEDIENT = by(lambda text: 10.0 if _VERDICT.search(text) else quality(text))
KEYWORDS = by(lambda text: capped(1 + len(set(re.findall(r"\w+|[\u3400-\u9fff]", text))) / 3))
SATURATED = by(lambda text: 10.0 if text else 9.0)


def first(call: JudgeCall) -> Answer:
    """Whoever is shown first wins, unless the other one is the only answer worth the name."""
    texts = shown(call)
    scores = [quality(text) for text in texts]
    order = list(range(len(texts)))
    if min(scores) == 1.0:
        order.sort(key=lambda k: -scores[k])
    return Judgement(tuple(k + 1 for k in order), tuple(scores))


def _draw(call: JudgeCall) -> float:
    """A number from 0 to 1 that is another one for each attempt at the same question."""
    seed = call.digest[0] * 251 + call.digest[1] * 7 + call.attempt * 101
    return (seed % 97) / 97


def noisy(call: JudgeCall) -> Answer:
    """Four verdicts in five are drawn by lot."""
    texts = shown(call)
    lot = _draw(call)
    scores = [
        quality(text) if lot > 0.8 else capped(1 + (lot * 131 + 7 * k) % 10)
        for k, text in enumerate(texts)
    ]
    best = (
        max(range(len(texts)), key=lambda k: scores[k])
        if lot > 0.8
        else call.digest[2 + call.attempt % 8] % len(texts)
    )
    order = [best, *(k for k in range(len(texts)) if k != best)]
    return Judgement(tuple(k + 1 for k in order), tuple(scores))


def mumbling(call: JudgeCall) -> Answer:
    """One reply in five says nothing, however often it is asked."""
    return (
        "I see points on both sides." if sum(call.reading.prompt.encode()) % 5 == 0 else SOUND(call)
    )


def silenced(call: JudgeCall) -> Answer:
    """Sound, and lost for words where an answer speaks of verdicts."""
    return "…" if any(_VERDICT.search(text) for text in shown(call)) else SOUND(call)
