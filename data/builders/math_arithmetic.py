"""Word problems with whole numbers: shopping, discounts, trips, averages, shares."""

from __future__ import annotations

from data.builders.common import Draw
from data.builders.math_core import Problem, Worked, off

_NAMES = (
    "Mira",
    "Tom",
    "Aisha",
    "Jonas",
    "Lucía",
    "Kofi",
    "Hanna",
    "Ravi",
    "Elena",
    "Owen",
    "Sofia",
    "Ben",
)


def shopping(draw: Draw) -> Problem:
    """Two kinds of goods are bought and paid with one note."""
    name, (one, two) = (
        draw.pick(_NAMES),
        draw.pick((("notebook", "pen"), ("mug", "plate"), ("scarf", "hat"))),
    )
    n, p, m, q = draw.between(3, 8), draw.between(6, 14), draw.between(2, 9), draw.between(3, 9)
    paid = (n * p + m * q) // 50 * 50 + 50
    prompt = draw.pick(
        (
            f"{name} buys {n} {one}s at {p} dollars each and {m} {two}s at {q} dollars each and "
            f"pays with {paid} dollars. How much change does {name} get?",
            f"A {one} costs {p} dollars and a {two} costs {q} dollars. {name} takes {n} {one}s and "
            f"{m} {two}s and hands over {paid} dollars. What is the change in dollars?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        first, second = off(n * p, slip == "product", say), m * q
        total = off(first + second, slip == "sum", say)
        steps = [
            say.pick(
                (
                    f"The {one}s cost {n} × {p} = {first} dollars.",
                    f"For the {one}s: {n} × {p} = {first} dollars.",
                )
            )
        ]
        if slip == "one-kind-forgotten":
            total = first
        else:
            steps.append(f"The {two}s cost {m} × {q} = {second} dollars.")
            steps.append(
                say.pick(("Together that is", "The whole bill is"))
                + f" {first} + {second} = {total} dollars."
            )
        change = off(paid - total, slip == "difference", say)
        steps.append(
            say.pick(("The change is", f"{name} gets back"))
            + f" {paid} - {total} = {change} dollars."
        )
        return steps, str(change)

    return Problem(prompt, work, ("product", "sum", "one-kind-forgotten", "difference"))


def discount(draw: Draw) -> Problem:
    """A price falls by a percentage and then by a voucher."""
    thing = draw.pick(("jacket", "lamp", "backpack", "desk", "bicycle helmet"))
    price, percent, voucher = 20 * draw.between(4, 14), 5 * draw.between(2, 8), draw.between(3, 12)
    prompt = draw.pick(
        (
            f"A {thing} costs {price} euros. It is reduced by {percent} percent, and then a "
            f"voucher of {voucher} euros is "
            "taken off. What is the final price in euros?",
            f"During a sale a {thing} with a list price of {price} euros gets {percent} percent "
            f"off. At the till a voucher worth {voucher} euros is subtracted as well. How many "
            f"euros are left to pay?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        part = (
            percent
            if slip == "percent-as-euros"
            else off(price * percent // 100, slip == "percentage", say)
        )
        steps = [f"{percent} percent of {price} euros is {part} euros."]
        if slip == "percent-as-euros":
            steps = [f"A reduction of {percent} percent takes {part} euros off the price."]
        if slip == "discount-added":
            reduced = price + part
            steps.append(f"With the reduction the price is {price} + {part} = {reduced} euros.")
        else:
            reduced = price - part
            steps.append(
                say.pick(("The reduced price is", "That leaves"))
                + f" {price} - {part} = {reduced} euros."
            )
        if slip == "voucher-forgotten":
            return [*steps, f"So the final price is {reduced} euros."], str(reduced)
        final = reduced - voucher
        steps.append(
            say.pick(("After the voucher it is", "Now the voucher:"))
            + f" {reduced} - {voucher} = {final} euros."
        )
        return steps, str(final)

    return Problem(
        prompt, work, ("percent-as-euros", "percentage", "discount-added", "voucher-forgotten")
    )


def trip(draw: Draw) -> Problem:
    """Two legs of a trip at different speeds."""
    who = draw.pick(("A cyclist", "A bus", "A delivery van", "A canal boat"))
    s, t, v = draw.between(2, 5), draw.between(11, 19), draw.between(21, 34)
    u = s + draw.between(1, 3)
    prompt = draw.pick(
        (
            f"{who} travels {s} hours at {t} kilometres per hour and then {u} hours at {v} "
            f"kilometres per hour. "
            "How many kilometres is the whole trip?",
            f"{who} covers the first leg of a trip in {s} hours at {t} km/h and the second in {u} "
            f"hours at {v} km/h. "
            "Find the total distance in kilometres.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "speeds-added":
            total = (s + u) * (t + v)
            steps = [
                f"The hours add up to {s} + {u} = {s + u}.",
                f"The speeds add up to {t} + {v} = {t + v}.",
            ]
            return [*steps, f"The distance is {s + u} × {t + v} = {total} kilometres."], str(total)
        hours = (u, s) if slip == "hours-swapped" else (s, u)
        first, second = off(hours[0] * t, slip == "product", say), hours[1] * v
        total = off(first + second, slip == "sum", say)
        steps = [
            say.pick(("The first leg is", "First leg:"))
            + f" {hours[0]} × {t} = {first} kilometres.",
            say.pick(("The second leg is", "Second leg:"))
            + f" {hours[1]} × {v} = {second} kilometres.",
            say.pick(("The whole trip is", "Altogether:"))
            + f" {first} + {second} = {total} kilometres.",
        ]
        return steps, str(total)

    return Problem(prompt, work, ("speeds-added", "hours-swapped", "product", "sum"))


def average(draw: Draw) -> Problem:
    """The last score that is needed for a given mean."""
    name, scores = draw.pick(_NAMES), [draw.between(61, 89) for _ in range(4)]
    goal = sum(scores) // 4 + draw.between(1, 3)
    listed = ", ".join(str(score) for score in scores[:3]) + f" and {scores[3]}"
    prompt = draw.pick(
        (
            f"{name} scored {listed} points in four tests. Which score in the fifth test gives a "
            f"mean of {goal}?",
            f"After four tests with {listed} points, {name} wants a mean of exactly {goal} over "
            f"five tests. "
            "How many points are needed in the fifth?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        have, count = (
            off(sum(scores), slip == "sum", say),
            4 if slip == "four-instead-of-five" else 5,
        )
        added = " + ".join(str(score) for score in scores)
        steps = [f"The four tests add up to {added} = {have} points."]
        if slip == "mean-of-means":
            need = 2 * goal - have // 4
            steps.append(f"Their mean is about {have // 4}.")
            return [
                *steps,
                f"To reach {goal} the fifth score must be 2 × {goal} - {have // 4} = {need} "
                f"points.",
            ], str(need)
        must = off(count * goal, slip == "product", say)
        need = must - have
        steps.append(
            say.pick(("The mean asks for", "In total we need"))
            + f" {count} × {goal} = {must} points."
        )
        steps.append(
            say.pick(("So the fifth test needs", "What is missing is"))
            + f" {must} - {have} = {need} points."
        )
        return steps, str(need)

    return Problem(prompt, work, ("sum", "four-instead-of-five", "mean-of-means", "product"))


def shares(draw: Draw) -> Problem:
    """An amount is shared in a ratio and the difference is asked."""
    one, two = draw.sample(_NAMES, 2)
    a, b, part = draw.between(5, 9), draw.between(2, 4), draw.between(6, 19)
    total = (a + b) * part
    prompt = draw.pick(
        (
            f"{one} and {two} share {total} dollars in the ratio {a} to {b}. How many dollars "
            f"more does {one} get?",
            f"A prize of {total} dollars is divided between {one} and {two} in the ratio {a}:{b}. "
            f"By how many dollars is the share of {one} larger?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        parts = a if slip == "divided-by-one-share" else off(a + b, slip == "parts", say)
        each = total // parts
        steps = [f"The ratio has {a} + {b} = {parts} parts."]
        if slip == "divided-by-one-share":
            steps = [f"The larger share counts {a} parts, so divide by {a}."]
        steps.append(f"One part is {total} ÷ {parts} = {each} dollars.")
        big, small = a * each, b * each
        steps.append(f"{one} gets {a} × {each} = {big} dollars.")
        if slip == "share-instead-of-difference":
            return [*steps, f"So the answer is {big} dollars."], str(big)
        steps.append(f"{two} gets {b} × {each} = {small} dollars.")
        more = off(big - small, slip == "difference", say)
        steps.append(
            say.pick(("The difference is", f"So {one} gets more by"))
            + f" {big} - {small} = {more} dollars."
        )
        return steps, str(more)

    return Problem(
        prompt, work, ("divided-by-one-share", "parts", "share-instead-of-difference", "difference")
    )


ALL = (shopping, discount, trip, average, shares)
