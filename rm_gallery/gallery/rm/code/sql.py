"""Does an SQL answer return what the reference query returns?"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.sandbox.sql import QueryResult, run_query_apart, same_results
from rm_gallery.core.text.blocks import split_fences
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import DataError, Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, known, one_score, references_of, shown

_DIALECTS = frozenset({"sql", "sqlite", "sqlite3"})
_TOKEN = re.compile(
    r"'(?:[^']|'')*'?|\"[^\"]*\"?|`[^`]*`?|\[[^\]]*\]?|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|\w+|[()]", re.DOTALL
)


_REFERENCES_KEPT, _ROWS_KEPT = 32, 1000
_REFERENCES: dict[tuple[str, str, float, int], QueryResult] = {}
"""Results of reference queries, which the answers to one question share."""


@RewardRegistry.register("sql_result_equality")
class SqlResultEqualityReward(RuleReward):
    """1 when the answer's query returns the same rows as the reference query on a small SQLite database, else 0.

    The reference query is the sample's reference (a list: any of them); `schema` in answer.label or metadata is the script
    that builds the database, its rows included. The answer's query is its last block marked sql, else its last block, else
    the whole answer after a thought. Rows compare as a multiset, and in order when the reference has an ORDER BY of its own;
    integers are exact, other numbers agree within 1e-6; column names do not matter, their number and order do. A query that
    fails, writes, takes longer than `timeout`, needs too much memory or returns too many rows is 0.

    Range {0, 1}, higher is better. Unscored without a reference (`no_reference`) or a schema (`no_schema`), and when one of
    these does not run (`bad_reference`, `bad_schema`). Every query gets a database of its own, in memory, and may only read;
    it runs in a worker process of bounded memory that is killed at its timeout. Source: execution accuracy of Spider and
    BIRD (arXiv 2305.03111), duplicates counted.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference", "schema"})

    name: str = "sql_result_equality"
    timeout: float = Field(default=5.0, gt=0)
    """Seconds one query may run."""
    max_rows: int = Field(default=10_000, gt=0)
    """Rows a query may return."""

    example = Example(
        sample_of(
            "Which towns have more than a million people? List them by size, largest first.",
            "SELECT name FROM town WHERE people > 1000000 ORDER BY people DESC",
            "SELECT name FROM town ORDER BY people DESC",
            "SELECT town FROM people",
            schema="CREATE TABLE town (name TEXT, people INTEGER);\n"
            "INSERT INTO town VALUES ('Lyon', 520000), ('Paris', 2100000), ('Berlin', 3700000);",
            reference="SELECT name FROM town WHERE people > 1e6 ORDER BY people DESC",
        ),
        inputs={"schema": "`schema` in `answer.label` or `metadata`: the SQL script that builds and fills the database"},
    )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Run both queries and compare."""
        references = references_of(sample, self.name)
        schema = self._schema(sample)
        expected = [await self._reference(schema, query) for query in references]
        query = sql_of(answer_text(sample))
        if not query:
            return one_score(self.name, 0.0, "The answer holds no query.")
        built = max(rows.schema_seconds for rows in expected)
        found = await run_query_apart(schema, query, deadline=self.timeout, max_rows=self.max_rows, schema_seconds=built)
        if found.error:
            return one_score(self.name, 0.0, f"The query does not run: {found.error}")
        equal = False
        for text, rows in zip(references, expected, strict=True):
            equal = equal or await same_results(found, rows, ordered=ordered(text))
        size = f"{len(found.rows)} rows of {len(found.columns)} columns"
        reason = f"The results are equal: {size}." if equal else f"The result is another one: {size}."
        return one_score(self.name, float(equal), reason)

    def _schema(self, sample: DataSample) -> str:
        value = known(sample, "schema")
        script = ";\n".join(map(str, value)) if isinstance(value, list | tuple) else value
        if not isinstance(script, str) or not script.strip():
            raise Unscored(
                f"{self.name} needs the script that builds the database: set answer.label['schema'] or "
                f"metadata['schema']; found {shown(value)}.",
                reason="no_schema",
            )
        return script

    async def _reference(self, schema: str, query: str) -> QueryResult:
        key = (schema, query, self.timeout, self.max_rows)
        result = _REFERENCES.get(key)
        if result is None:
            try:
                result = await run_query_apart(schema, query, deadline=self.timeout, max_rows=self.max_rows)
            except DataError as error:
                raise Unscored(f"{self.name}: {error}", reason="bad_schema") from error
            if result.error != "deadline" and len(result.rows) <= _ROWS_KEPT:
                if len(_REFERENCES) >= _REFERENCES_KEPT:
                    _REFERENCES.clear()
                _REFERENCES[key] = result
        if result.error:
            message = f"{self.name}: the reference query does not run: {result.error}"
            raise Unscored(message, reason="bad_reference")
        return result


def sql_of(text: str) -> str:
    """The query of an answer: the last block marked sql, else the last block, else all of it after a thought."""
    text = split_reasoning(text).final
    blocks = [block for block in split_fences(text)[0] if block.body.strip()]
    marked = [block for block in blocks if block.language in _DIALECTS]
    return (marked or blocks)[-1].body.strip() if blocks else text.strip()


def ordered(query: str) -> bool:
    """Whether a query orders its result: an ORDER BY outside of all parentheses, quotes and comments."""
    depth, before = 0, ""
    for token in _TOKEN.finditer(query):
        if token["comment"] is not None:
            continue
        word = token[0].upper()
        if word in "()":
            depth += 1 if word == "(" else -1
        elif depth == 0 and (before, word) == ("ORDER", "BY"):
            return True
        before = word
    return False
