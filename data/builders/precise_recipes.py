"""One recipe per constraint: how the prompt words it, and how texts are proposed that may or may
not obey it.
"""

from __future__ import annotations

import json

from data.builders import precise_rules
from data.builders.common import Draw, sentence_case
from data.builders.precise_core import NUMBERS, Recipe, Subject, Task, task


def exact_words(subject: Subject, draw: Draw) -> Task:
    """An exact number of words."""
    count = len(precise_rules.words(" ".join(subject.compose(draw, 3, 5))))
    wish = draw.pick(
        (
            f"Use exactly {count} words.",
            f"The text must have exactly {count} words, no more and no fewer.",
        )
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, 2, 6)
        while abs(len(precise_rules.words(" ".join(made))) - count) > 6:
            made = subject.compose(say, 2, 6)
        return " ".join(made)

    return task(subject, draw, wish, (f"words:{count}",), propose)


def most_words(subject: Subject, draw: Draw) -> Task:
    """A limit on the number of words together with a word that must occur."""
    count = draw.between(26, 40)
    wish = draw.pick(
        (
            f"Use at most {count} words, and mention the word {subject.keyword} exactly once.",
            f"Stay within {count} words and let the word {subject.keyword} occur exactly one time.",
        )
    )
    rules = (f"words<=:{count}", f"keyword:{subject.keyword}:1")
    return task(subject, draw, wish, rules, lambda say: " ".join(subject.compose(say, 2, 5)))


def least_words(subject: Subject, draw: Draw) -> Task:
    """A least number of words, without a certain letter."""
    letter, count = draw.pick("zqxj"), draw.between(30, 40)
    wish = draw.pick(
        (
            f"Write at least {count} words, and do not use the letter {letter} anywhere.",
            f"It should be {count} words or longer and must not contain the letter {letter}.",
        )
    )
    rules = (f"words>=:{count}", f"without:{letter}")

    def propose(say: Draw) -> str:
        return " ".join(subject.compose(say, 3, 7))

    return task(subject, draw, wish, rules, propose)


def forbidden_letter(subject: Subject, draw: Draw) -> Task:
    """A letter that must not occur."""
    letter = draw.pick("kvbpg")
    wish = draw.pick(
        (f"Do not use the letter {letter}.", f"The letter {letter} must not occur, in either case.")
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, 2, 5)
        if say.chance(0.5):
            made = [sentence for sentence in made if letter not in sentence.lower()]
        return " ".join(made)

    return task(subject, draw, wish, (f"without:{letter}",), propose)


def no_commas(subject: Subject, draw: Draw) -> Task:
    """No commas at all."""
    wish = draw.pick(
        ("Do not use any commas.", "Avoid commas altogether.", "The text must not contain a comma.")
    )
    return task(
        subject, draw, wish, ("without:,",), lambda say: " ".join(subject.compose(say, 2, 5))
    )


def sentences(subject: Subject, draw: Draw) -> Task:
    """An exact number of sentences, the last one given."""
    count, closing = (
        draw.between(3, 5),
        draw.pick(("That is all.", "See for yourself.", "I would go back.")),
    )
    wish = draw.pick(
        (
            f'Write exactly {NUMBERS[count]} sentences and end with "{closing}" as the last of '
            f"them.",
            f'I want {NUMBERS[count]} sentences in total, and the last one has to be "{closing}"',
        )
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, count - 2, count)
        closed = say.pick(([*made, closing], [*made, closing], [closing, *made], [*made, made[0]]))
        return " ".join(closed)

    return task(subject, draw, wish, (f"sentences:{count}", f"ends:{closing}"), propose)


def paragraphs(subject: Subject, draw: Draw) -> Task:
    """An exact number of paragraphs."""
    count = draw.between(2, 4)
    wish = draw.pick(
        (
            f"Divide the text into exactly {NUMBERS[count]} paragraphs with a blank line between "
            f"them.",
            f"It must have {NUMBERS[count]} paragraphs, parted by blank lines.",
        )
    )

    def propose(say: Draw) -> str:
        parts = max(1, count + say.pick((0, 0, -1, 1)))
        made = subject.compose(say, parts, parts + 2)
        first = " ".join(made[: len(made) - parts + 1])
        return say.pick(("\n\n", "\n\n", "\n")).join([first, *made[len(made) - parts + 1 :]])

    return task(subject, draw, wish, (f"paragraphs:{count}",), propose)


def bullets(subject: Subject, draw: Draw) -> Task:
    """A list with an exact number of points and nothing around it."""
    count = draw.between(3, 5)
    wish = draw.pick(
        (
            f'Answer with exactly {NUMBERS[count]} bullet points that start with "- ", and '
            f"nothing else.",
            f'Use a list of {NUMBERS[count]} points, each on a line that begins with "- ", '
            f"without introduction or ending.",
        )
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, count - 1, count + 1)
        if say.chance(0.2):
            return "\n".join(["Here is the list:", *(f"- {each}" for each in made)])
        mark = say.pick(("- ", "- ", "- ", "* "))
        return "\n".join(f"{mark}{each}" for each in made)

    return task(subject, draw, wish, (f"bullets:{count}",), propose)


def ordered_items(subject: Subject, draw: Draw) -> Task:
    """A numbered list in alphabetical order."""
    count = draw.between(4, 6)
    wish = draw.pick(
        (
            f"List exactly {NUMBERS[count]} things that fit {subject.name}, numbered from 1 and "
            f"in alphabetical order.",
            f"Name {NUMBERS[count]} things that go with {subject.name} as a numbered list sorted "
            f"from A to Z.",
        )
    )

    def propose(say: Draw) -> str:
        items = sorted(say.sample(subject.items, count + say.pick((0, 0, 0, -1, 1))))
        if say.chance(0.6):
            place = say.below(len(items) - 1)
            items[place], items[place + 1] = items[place + 1], items[place]
        return "\n".join(f"{number}. {sentence_case(item)}" for number, item in enumerate(items, 1))

    return Task(wish, (f"sorted:{count}",), propose)


def lower_case(subject: Subject, draw: Draw) -> Task:
    """Small letters only, or capitals only."""
    upper = draw.chance(0.4)
    wish = draw.pick(
        ("Write everything in capital letters.", "Use capital letters only.")
        if upper
        else ("Write everything in lower case.", "Do not use any capital letters.")
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, 2, 5)
        change = str.upper if upper else str.lower
        keep = say.below(len(made)) if say.chance(0.5) else -1
        return " ".join(each if place == keep else change(each) for place, each in enumerate(made))

    return task(subject, draw, wish, ("upper" if upper else "lower",), propose)


def keyword(subject: Subject, draw: Draw) -> Task:
    """A word that must occur a given number of times."""
    wish = draw.pick(
        (
            f'Use the word "{subject.keyword}" exactly twice.',
            f'The word "{subject.keyword}" must appear two times, neither more nor less.',
        )
    )

    def propose(say: Draw) -> str:
        return " ".join(subject.compose(say, 3, 6))

    return task(subject, draw, wish, (f"keyword:{subject.keyword}:2",), propose)


def title(subject: Subject, draw: Draw) -> Task:
    """A title in double angle brackets on the first line."""
    name = subject.name.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    wish = draw.pick(
        (
            "Put a title in double angle brackets, such as <<my title>>, on the first line.",
            "Start with a line that holds only a title between << and >>.",
        )
    )

    def propose(say: Draw) -> str:
        heading = say.pick(
            (f"<<{name}>>", f"<<{name}>>", f"<{name}>", f"<< {name}", name, f"<<{name}>>:")
        )
        body = " ".join(subject.compose(say, 2, 5))
        return f"{body}\n{heading}" if say.chance(0.15) else f"{heading}\n{body}"

    return task(subject, draw, wish, ("title",), propose)


def quoted(subject: Subject, draw: Draw) -> Task:
    """The whole answer in double quotation marks."""
    wish = draw.pick(
        (
            "Put the entire answer in double quotation marks.",
            "Wrap your whole reply in double quotation marks.",
        )
    )

    def propose(say: Draw) -> str:
        made = subject.compose(say, 2, 5)
        body = " ".join(made)
        other = (f"'{body}'", f'"{body}', f'{body}"', body, f'"{made[0]}" {" ".join(made[1:])}')
        return f'"{body}"' if say.chance(0.4) else say.pick(other)

    return task(subject, draw, wish, ("quoted",), propose)


def starts_and_ends(subject: Subject, draw: Draw) -> Task:
    """A given beginning and a given ending."""
    opening, closing = (
        draw.pick(("Imagine this:", "Picture it:", "Well then:")),
        draw.pick(("The end.", "So it goes.")),
    )
    wish = draw.pick(
        (
            f'Begin with "{opening}" and finish with "{closing}"',
            f'The first words must be "{opening}" and the last words "{closing}"',
        )
    )

    def propose(say: Draw) -> str:
        made = " ".join(subject.compose(say, 2, 4))
        whole = f"{opening} {made} {closing}"
        other = (
            f"{made} {closing}",
            f"{opening} {made}",
            f"{closing} {made} {opening}",
            f"{whole} Thank you.",
        )
        return whole if say.chance(0.4) else say.pick(other)

    return task(subject, draw, wish, (f"starts:{opening}", f"ends:{closing}"), propose)


def json_object(subject: Subject, draw: Draw) -> Task:
    """One JSON object with given keys and nothing around it."""
    keys = draw.pick(
        (
            ("topic", "text"),
            ("title", "items", "text"),
            ("name", "items"),
            ("topic", "text", "tags"),
        )
    )
    listed = ", ".join(keys)
    wish = draw.pick(
        (
            f"Answer only with a valid JSON object that has exactly these keys: {listed}.",
            f"Return nothing but one JSON object with the keys {listed} and no others.",
        )
    )

    def propose(say: Draw) -> str:
        values: dict[str, object] = {
            "topic": subject.name, "title": sentence_case(subject.name), "name": subject.name,
            "text": " ".join(subject.compose(say, 1, 4)), "items": say.sample(subject.items, say.between(2, 5)),
            "tags": say.sample(subject.items, say.between(1, 3)), "note": say.pick(subject.sentences),
        }  # fmt: skip
        fault = say.pick(("", "", "missing", "extra", "comma", "quotes", "talk"))
        used = (
            [*keys[:-1]] if fault == "missing" else [*keys, "note"] if fault == "extra" else [*keys]
        )
        text = json.dumps(
            {key: values[key] for key in used},
            ensure_ascii=False,
            indent=2 if say.chance(0.4) else None,
        )
        if fault == "comma":
            return text[:-1].rstrip() + ",}"
        if fault == "quotes":
            return text.replace('"', "'")
        return f"Here is the object: {text}" if fault == "talk" else text

    return task(subject, draw, wish, (f"json:{','.join(keys)}",), propose)


ALL: tuple[Recipe, ...] = (
    exact_words, most_words, least_words, forbidden_letter, no_commas, sentences, paragraphs, bullets, ordered_items,
    lower_case, keyword, title, quoted, starts_and_ends, json_object,
)  # fmt: skip
