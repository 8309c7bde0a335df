"""Factuality: answers built from tables of facts; a wrong answer swaps one fact for another of the
same type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from data.builders import balance, sources
from data.builders.common import Candidate, Draft, Draw, Style, halves, sentence_case
from data.builders.layout import lengths

ROWS_EN, ROWS_ZH = 58, 6
_TRIES = 200
Facts = dict[str, str]


@dataclass(frozen=True)
class Table:
    """Entities of one type with their attributes and the sentences in which they are told."""

    name: str
    near: str
    chinese: bool
    attributes: tuple[str, ...]
    rows: tuple[Facts, ...]
    asks: dict[str, list[str]]
    says: dict[str, list[str]]
    opens: tuple[str, ...]
    asides: tuple[str, ...]


def _table(block: sources.Block) -> Table:
    columns = [part.strip() for part in block.one("cols:").split("|")]
    rows = []
    for line in block.tagged("row:"):
        values = [part.strip() for part in line.split("|")]
        if len(values) != len(columns):
            raise ValueError(
                f"table {block.name}: {line!r} has {len(values)} values, expected {len(columns)}"
            )
        rows.append(dict(zip(columns, values, strict=True)))
    says = {column: block.tagged(f"say {column}:") for column in columns}
    return Table(
        name=block.name,
        near=block.one("near:"),
        chinese=block.one("lang:", "en") == "zh",
        attributes=tuple(column for column in columns if says[column]),
        rows=tuple(rows),
        asks={column: frames for column in columns if (frames := block.tagged(f"ask {column}:"))},
        says=says,
        opens=tuple(block.tagged("open:")),
        asides=tuple(block.tagged("aside:")),
    )


def wrong_value(table: Table, facts: Facts, attribute: str, draw: Draw) -> str:
    """Return a false value of the same type, mostly from an entity that looks alike, or a number
    that is close.
    """
    right = facts[attribute]
    if right.isdigit() and draw.chance(0.6):
        step = draw.between(1, 3) if len(right) < 3 else draw.pick((1, 2, 3, 5, 9, 10, 11, 20))
        return str(
            int(right) + step if draw.chance(0.5) or int(right) <= step else int(right) - step
        )
    others = [row for row in table.rows if row[attribute] != right]
    alike = [row for row in others if row[table.near] == facts[table.near]]
    return draw.pick(alike if alike and draw.chance(0.7) else others)[attribute]


def _tell(table: Table, facts: Facts, attribute: str, draw: Draw) -> str:
    return sentence_case(draw.pick(table.says[attribute]).format(**facts))


@dataclass(frozen=True)
class _Question:
    table: Table
    facts: Facts
    asked: str | None

    def answer(self, false: dict[str, str], kind: str, markdown: bool, draw: Draw) -> Candidate:
        """Tell the facts with some of them replaced; what was asked or replaced is in every length."""
        told = {**self.facts, **false}
        others = [name for name in draw.shuffled(self.table.attributes) if name != self.asked]
        core = list(others) if self.asked is None else [self.asked]
        core += [name for name in false if name not in core]
        sentences = [_tell(self.table, told, name, draw) for name in core]
        extra = [_tell(self.table, told, name, draw) for name in others if name not in core]
        extra += draw.sample([aside.format(**self.facts) for aside in self.table.asides], 2)
        return Candidate(kind, lengths(sentences + extra, len(core), markdown, draw))


def _falsehoods(question: _Question, draw: Draw) -> list[tuple[str, dict[str, str]]]:
    """Return three different ways to be wrong: the asked fact twice and a detail once, or three
    details.
    """
    table, facts = question.table, question.facts
    if question.asked is None:
        targets = [draw.pick(table.attributes) for _ in range(3)]
    else:
        details = [name for name in table.attributes if name != question.asked]
        targets = draw.shuffled([question.asked, question.asked, draw.pick(details)])
    found: list[tuple[str, dict[str, str]]] = []
    for target in targets:
        proposals = ({target: wrong_value(table, facts, target, draw)} for _ in range(_TRIES))
        fresh = (
            proposal for proposal in proposals if all(proposal != earlier for _, earlier in found)
        )
        false = next(fresh, None)
        if false is None:
            raise ValueError(
                f"table {table.name} has too few values of {target}; add rows to facts.txt"
            )
        found.append(
            (
                f"swap-answer:{target}" if target == question.asked else f"swap-detail:{target}",
                false,
            )
        )
    return found


def _draft(question: _Question, style: Style, draw: Draw) -> Draft:
    table, facts, asked = question.table, question.facts, question.asked
    frames = table.opens if asked is None else table.asks[asked]
    right = question.answer({}, "true", style[0], draw)
    wrong = [
        question.answer(false, kind, markdown, draw)
        for (kind, false), markdown in zip(_falsehoods(question, draw), style[1:], strict=True)
    ]
    correct = "; ".join(facts[name] for name in table.attributes) if asked is None else facts[asked]
    prompt = draw.pick(frames).format(**facts)
    return Draft(
        prompt, (right,), tuple(wrong), table.name, asked or "open", "swapped fact", correct=correct
    )


def _choose(tables: list[Table], count: int, draw: Draw) -> list[_Question]:
    """Take entities from the tables in turn until there are count questions; about one in four is
    an open one.
    """
    questions: list[_Question] = []
    left = {table.name: list(table.rows) for table in tables}
    if sum(map(len, left.values())) < count:
        raise ValueError(f"fewer than {count} entities in the tables; add rows to facts.txt")
    while len(questions) < count:
        for table in tables:
            if left[table.name] and len(questions) < count:
                asked = None if draw.chance(0.25) else draw.pick(sorted(table.asks))
                questions.append(_Question(table, left[table.name].pop(), asked))
    return questions


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits.

    An entity belongs to one split only, for questions and for swaps: a value that is right in one
    split and wrong in the other would reward or punish learning by heart.
    """
    whole = [_table(block) for block in sources.blocks("facts.txt")]
    divided = {table.name: halves(table.rows, Draw("factuality", table.name)) for table in whole}
    result: dict[str, list[Draft]] = {}
    for split in ("train", "test"):
        draw = Draw("factuality", split)
        tables = [replace(table, rows=tuple(divided[table.name][split])) for table in whole]
        questions = _choose([table for table in tables if not table.chinese], ROWS_EN, draw)
        questions += _choose([table for table in tables if table.chinese], ROWS_ZH, draw)
        plan = balance.styles(len(questions), draw)
        made = [
            _draft(question, style, draw) for question, style in zip(questions, plan, strict=True)
        ]
        result[split] = draw.shuffled(made)
    return result
