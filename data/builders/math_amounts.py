"""Word problems on sizes and amounts: fences, recipes, growth, buses."""

from __future__ import annotations

from data.builders.common import Draw
from data.builders.math_core import Problem, Worked, off


def fence(draw: Draw) -> Problem:
    """A fence around a rectangle with a gate."""
    long, wide, gate = draw.between(14, 38), draw.between(6, 13), draw.between(2, 4)
    place = draw.pick(("garden", "meadow", "playground", "chicken run"))
    prompt = draw.pick(
        (
            f"A rectangular {place} is {long} metres long and {wide} metres wide. It gets a fence "
            f"all round, except for a gate of {gate} metres. How many metres of fence are needed?",
            f"How many metres of fence go around a rectangular {place} of {long} by {wide} metres "
            f"if a gap of {gate} "
            "metres is left for the gate?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "area":
            size, last = long * wide, long * wide - gate
            steps = [f"The {place} measures {long} × {wide} = {size}."]
            return [*steps, f"Without the gate that is {size} - {gate} = {last} metres."], str(last)
        half = off(long + wide, slip == "sum", say)
        steps = [
            say.pick(("Length and width together are", "One long and one short side:"))
            + f" {long} + {wide} = {half}."
        ]
        around = half
        if slip != "half-the-way":
            around = 2 * half
            steps.append(f"All four sides make 2 × {half} = {around} metres.")
        if slip == "gate-added":
            last = around + gate
            return [*steps, f"With the gate this is {around} + {gate} = {last} metres."], str(last)
        last = around - gate
        steps.append(
            say.pick(("Take off the gate:", "The gate is not fenced, so"))
            + f" {around} - {gate} = {last} metres."
        )
        return steps, str(last)

    return Problem(prompt, work, ("area", "sum", "half-the-way", "gate-added"))


def recipe(draw: Draw) -> Problem:
    """An amount is scaled from one number of portions to another."""
    thing = draw.pick(("flour", "rice", "sugar", "oats"))
    few, each = draw.between(3, 6), 5 * draw.between(7, 18)
    many = few + draw.between(2, 9)
    amount = few * each
    prompt = draw.pick(
        (
            f"A recipe for {few} people needs {amount} grams of {thing}. How many grams are "
            f"needed for {many} people?",
            f"With {amount} grams of {thing} a cook serves {few} people. What amount in grams "
            f"serves {many} people?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "difference-added":
            more = many - few
            last = amount + more * 10
            steps = [f"There are {many} - {few} = {more} people more."]
            return [
                *steps,
                f"Adding 10 grams for each of them gives {amount} + {more * 10} = {last} grams.",
            ], str(last)
        one = off(each, slip == "division", say)
        if slip == "inverted":
            last = amount * few // many
            return [
                f"The amount is multiplied by {few} and divided by {many}.",
                f"That gives about {last} grams.",
            ], str(last)
        last = off(many * one, slip == "product", say)
        steps = [
            say.pick(("One person needs", "Per person that is"))
            + f" {amount} ÷ {few} = {one} grams.",
            say.pick((f"For {many} people this makes", "Scaled up:"))
            + f" {many} × {one} = {last} grams.",
        ]
        return steps, str(last)

    return Problem(prompt, work, ("difference-added", "division", "inverted", "product"))


def growth(draw: Draw) -> Problem:
    """A number grows by the same percentage twice."""
    what = draw.pick(("members of a club", "subscribers of a newsletter", "fish in a pond"))
    start, percent = 100 * draw.between(3, 12), draw.pick((10, 20, 30))
    prompt = draw.pick(
        (
            f"The number of {what} is {start} and grows by {percent} percent a year. What is it "
            f"after two years?",
            f"There are {start} {what} today. Every year the number rises by {percent} percent. "
            f"How many are there in "
            "two years?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "simple-growth":
            rise = start * 2 * percent // 100
            steps = [
                f"Two years of growth make 2 × {percent} = {2 * percent} percent, which is {rise}."
            ]
            return [*steps, f"The number becomes {start} + {rise} = {start + rise}."], str(
                start + rise
            )
        rise = start * percent // 100 + (say.pick((10, -10, 20)) if slip == "percentage" else 0)
        middle = start + rise
        steps = [
            f"In the first year {percent} percent of {start} is {rise}, so the number becomes "
            f"{start} + {rise} = {middle}."
        ]
        if slip == "one-year-only":
            return [*steps, f"The answer is {middle}."], str(middle)
        more = middle * percent // 100
        last = off(middle + more, slip == "sum", say)
        steps.append(
            say.pick(("In the second year", "The year after,"))
            + f" {percent} percent of {middle} is {more}."
        )
        steps.append(f"After two years there are {middle} + {more} = {last}.")
        return steps, str(last)

    return Problem(prompt, work, ("simple-growth", "percentage", "one-year-only", "sum"))


def buses(draw: Draw) -> Problem:
    """A division whose remainder asks for one more bus."""
    seats, full = draw.between(24, 48), draw.between(4, 9)
    group, adults = seats * full - draw.between(2, 11), draw.between(12, 20)
    people = group + adults
    need = -(-people // seats)
    prompt = draw.pick(
        (
            f"{group} pupils and {adults} adults go on a trip. A bus has {seats} seats. How many "
            f"buses are needed?",
            f"A school books buses with {seats} seats each for {group} pupils and {adults} adults. "
            "What is the smallest number of buses?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        total = group if slip == "adults-forgotten" else off(people, slip == "sum", say)
        steps = [f"There are {group} + {adults} = {total} people."]
        if slip == "adults-forgotten":
            steps = [f"There are {total} people to carry."]
        whole, rest = divmod(total, seats)
        steps.append(f"{whole} full buses carry {whole} × {seats} = {whole * seats} people.")
        if slip == "rounded-down":
            return [*steps, f"That is close enough, so {whole} buses are needed."], str(whole)
        if slip == "two-spare":
            return [
                *steps,
                f"To be safe two more are ordered, which makes {whole} + 2 = {whole + 2} buses.",
            ], str(whole + 2)
        if slip == "rest-as-answer":
            return [
                *steps,
                f"What is left gives the answer: {total} - {whole * seats} = {rest}.",
            ], str(rest)
        steps.append(f"{rest} people are left over and need one more bus.")
        last = whole + 1
        steps.append(say.pick(("The school needs", "Altogether")) + f" {whole} + 1 = {last} buses.")
        return steps, str(last)

    if need != (people // seats) + 1:
        return buses(draw)
    return Problem(
        prompt, work, ("rounded-down", "two-spare", "rest-as-answer", "adults-forgotten")
    )


ALL = (fence, recipe, growth, buses)
