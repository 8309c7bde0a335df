"""Problems with unknowns and formulas: equations, ages, legs, series, quadratics, marbles, order of
operations.
"""

from __future__ import annotations

from fractions import Fraction

from data.builders.common import Draw
from data.builders.math_core import Problem, Worked, off


def linear(draw: Draw) -> Problem:
    """A linear equation with the unknown on both sides."""
    x, a, c = draw.between(3, 12), draw.between(6, 11), draw.between(2, 4)
    b = draw.between(3, 20)
    d = (a - c) * x + b
    prompt = draw.pick(
        (
            f"Solve for x: {a}x + {b} = {c}x + {d}.",
            f"Which number x satisfies {a}x + {b} = {c}x + {d}?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "sign":
            steps = [
                f"Bring the terms with x together: {a} + {c} = {a + c}, so there are {a + c}x on "
                f"the left."
            ]
            right = d - b
            steps.append(f"On the right we get {d} - {b} = {right}.")
            value = Fraction(right, a + c)
            return [*steps, f"Divide, and x = {value}."], str(value)
        left = a - c
        right = d + b if slip == "constant-sign" else off(d - b, slip == "difference", say)
        sign = "+" if slip == "constant-sign" else "-"
        steps = [
            say.pick(("Subtract", "Take away"))
            + f" {c}x on both sides: {a} - {c} = {left}, which leaves {left}x + {b} = {d}.",
            say.pick(("Move the constant:", "Now the constant:"))
            + f" {d} {sign} {b} = {right}, so {left}x = {right}.",
        ]
        if slip == "not-divided":
            return [*steps, f"Hence x = {right - left}."], str(right - left)
        value = Fraction(right, left)
        return [
            *steps,
            say.pick((f"Divide by {left}, so x = {value}.", f"Therefore x = {value}.")),
        ], str(value)

    return Problem(prompt, work, ("sign", "constant-sign", "difference", "not-divided"))


def ages(draw: Draw) -> Problem:
    """A parent is k times as old as a child and in n years their ages have a given sum."""
    child, k, n = draw.between(5, 11), draw.between(3, 5), draw.between(3, 9)
    total = child * (k + 1) + 2 * n
    parent = draw.pick(("A mother", "A father", "An aunt", "An uncle"))
    prompt = draw.pick(
        (
            f"{parent} is {k} times as old as a child. In {n} years their ages will add up to "
            f"{total}. How old is the child "
            "now?",
            f"Today {parent[0].lower()}{parent[1:]} is {k} times as old as a certain child. The "
            f"sum of both ages in {n} years is {total}. Find the age of the child today.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        years = n if slip == "one-person-only" else 2 * n
        if slip == "one-person-only":
            steps = [f"Go back {n} years: {total} - {n} = {total - n}."]
        elif slip == "years-forgotten":
            years = 0
            steps = [f"The ages together make {total}."]
        else:
            steps = [
                say.pick(("Both get older, which adds", "The two of them gain"))
                + f" 2 × {n} = {2 * n} years.",
                f"So today the ages add up to {total} - {2 * n} = {total - 2 * n}.",
            ]
        today = total - years
        parts = k if slip == "child-not-counted" else k + 1
        if slip == "child-not-counted":
            steps.append(f"The older one counts {k} parts, so we divide by {k}.")
        else:
            steps.append(f"Child and adult together make {k} + 1 = {k + 1} parts.")
        value = off(today // parts, slip == "division", say)
        steps.append(f"The child is {value} years old, as {today} ÷ {parts} comes to {value}.")
        return steps, str(value)

    return Problem(
        prompt, work, ("one-person-only", "years-forgotten", "child-not-counted", "division")
    )


def legs(draw: Draw) -> Problem:
    """Heads and legs of two kinds of animals."""
    birds, beasts = draw.between(7, 21), draw.between(5, 18)
    if birds == beasts:
        birds += 2
    bird, beast = draw.pick((("chickens", "rabbits"), ("ducks", "sheep"), ("geese", "goats")))
    heads, feet = birds + beasts, 2 * birds + 4 * beasts
    prompt = draw.pick(
        (
            f"A farm has {bird} and {beast}, with {heads} heads and {feet} legs in all. How many "
            f"{beast} are there?",
            f"In a yard there are only {bird} and {beast}. Someone counts {heads} heads and {feet} "
            f"legs. Find the number of {beast}.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        base = off(2 * heads, slip == "product", say)
        steps = [
            say.pick(
                (
                    f"If all were {bird}, there would be",
                    f"Suppose there are only {bird}; that makes",
                )
            )
            + f" 2 × {heads} = {base} legs."
        ]
        extra = off(feet - base, slip == "difference", say)
        steps.append(
            say.pick(("The extra legs are", "Too few by")) + f" {feet} - {base} = {extra}."
        )
        each = 4 if slip == "divided-by-four" else 2
        value = extra // each
        why = f"Each of the {beast} has {each} of these legs"
        steps.append(why + (f", so we get {extra} ÷ {each}, that is {value}."))
        if slip == "other-animal":
            value = heads - value
            steps.append(f"That leaves {value} {beast}.")
        else:
            steps.append(f"So there are {value} {beast}.")
        return steps, str(value)

    return Problem(prompt, work, ("product", "difference", "divided-by-four", "other-animal"))


def series(draw: Draw) -> Problem:
    """The sum of an arithmetic series."""
    first, step, count = draw.between(3, 12), draw.between(2, 7), 2 * draw.between(4, 9)
    prompt = draw.pick(
        (
            f"An arithmetic sequence starts at {first} and rises by {step} each time. What is the "
            f"sum of its first {count} "
            "terms?",
            f"The first row of a hall has {first} seats and each row has {step} seats more than "
            f"the one before it. How many seats are there in {count} rows?",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        gaps = count if slip == "one-gap-too-many" else count - 1
        rise = off(gaps * step, slip == "product", say)
        last = first + rise
        steps = [
            f"From the first to the last there are {gaps} rises, and {gaps} × {step} = {rise}."
        ]
        steps.append(
            say.pick(("The last term is", "So the last one is")) + f" {first} + {rise} = {last}."
        )
        pair = first + last
        if slip == "no-halving":
            steps.append(f"First and last make {first} + {last} = {pair}.")
            return [*steps, f"The sum is {count} × {pair} = {count * pair}."], str(count * pair)
        if slip == "first-term-left-out":
            pair = last
            steps.append(f"The pairs have the value {last}.")
        else:
            steps.append(f"A pair of first and last makes {first} + {last} = {pair}.")
        steps.append(
            f"There are {count // 2} such pairs, so the sum is {count // 2} × {pair} = "
            f"{count // 2 * pair}."
        )
        return steps, str(count // 2 * pair)

    return Problem(
        prompt, work, ("one-gap-too-many", "product", "no-halving", "first-term-left-out")
    )


def quadratic(draw: Draw) -> Problem:
    """The larger root of a quadratic equation with whole roots."""
    small = draw.between(2, 6)
    large = small + draw.between(2, 7)
    s, p = small + large, small * large
    prompt = draw.pick(
        (
            f"What is the larger solution of x² - {s}x + {p} = 0?",
            f"Solve x² - {s}x + {p} = 0 and give the larger root.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        steps = [
            say.pick(
                (
                    f"We look for two numbers with product {p} and sum {s}.",
                    f"Factor: product {p}, sum {s}.",
                )
            )
        ]
        if slip == "signs":
            steps.append(
                f"They are {small} and {large}, so the factors are (x + {small}) and (x + {large})."
            )
            return [
                *steps,
                f"The roots are -{large} and -{small}, and the larger one is -{small}.",
            ], str(-small)
        if slip == "wrong-factors":
            low, high = small - 1, large + 1
            steps.append(
                f"Since {low} + {high} = {s}, the factors are (x - {low}) and (x - {high})."
            )
            return [*steps, f"The larger solution is {high}."], str(high)
        steps.append(
            f"Since {small} × {large} = {p} and {small} + {large} = {s}, we get (x - {small})(x - "
            f"{large}) = 0."
        )
        if slip == "smaller-root":
            return [*steps, f"The solution asked for is {small}."], str(small)
        if slip == "sum-of-roots":
            return [*steps, f"Both together give {s}, so the answer is {s}."], str(s)
        return [
            *steps,
            say.pick((f"The larger root is {large}.", f"Of the two, the larger one is {large}.")),
        ], str(large)

    return Problem(prompt, work, ("signs", "wrong-factors", "smaller-root", "sum-of-roots"))


def marbles(draw: Draw) -> Problem:
    """Two marbles of one colour are drawn without putting the first back."""
    red, blue = draw.between(3, 7), draw.between(3, 8)
    total = red + blue
    bag = draw.pick(("bag", "box", "jar"))
    prompt = draw.pick(
        (
            f"A {bag} holds {red} red and {blue} blue marbles. Two are taken out without putting "
            f"the first one back. What is "
            "the probability, as a reduced fraction, that both are red?",
            f"From a {bag} with {red} red and {blue} blue marbles you draw two without "
            f"replacement. Give the probability of "
            "two red ones as a fraction in lowest terms.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        if slip == "first-only":
            answer = Fraction(red, total)
            return [
                f"There are {red} + {blue} = {total} marbles.",
                f"The probability is {red}/{total}, which is {answer}.",
            ], str(answer)
        top, low = (red, total) if slip == "with-replacement" else (red - 1, total - 1)
        if slip == "total-not-reduced":
            low = total
        if slip == "red-not-reduced":
            top = red
        steps = [
            say.pick(("In all there are", f"The {bag} holds"))
            + f" {red} + {blue} = {total} marbles.",
            f"The first one is red with probability {red}/{total}.",
            f"The second one is red with probability {top}/{low}.",
        ]
        answer = Fraction(red * top, total * low)
        steps.append(
            say.pick(("The product, reduced, is", "Multiplying and reducing gives")) + f" {answer}."
        )
        return steps, str(answer)

    return Problem(
        prompt, work, ("first-only", "with-replacement", "total-not-reduced", "red-not-reduced")
    )


def operations(draw: Draw) -> Problem:
    """An expression in which multiplication, division and brackets come first."""
    a, b, d = draw.between(12, 40), draw.between(3, 9), draw.between(2, 6)
    c = d + draw.between(3, 8)
    f = draw.between(2, 5)
    e = f * draw.between(3, 9)
    term = f"{a} + {b} × ({c} - {d}) - {e} ÷ {f}"
    prompt = draw.pick(
        (
            f"Calculate {term}.",
            f"What is the value of {term}?",
            f"Work out {term} without a calculator.",
        )
    )

    def work(slip: str, say: Draw) -> Worked:
        inner = c - d
        steps = [
            say.pick(("Brackets first:", "Start with the brackets:")) + f" {c} - {d} = {inner}."
        ]
        if slip == "left-to-right":
            steps.append(f"Then {a} + {b} = {a + b} and {a + b} × {inner} = {(a + b) * inner}.")
            value = (a + b) * inner - e // f
            steps.append(
                f"With {e} ÷ {f} = {e // f} the result is {(a + b) * inner} - {e // f} = {value}."
            )
            return steps, str(value)
        product = off(b * inner, slip == "product", say)
        quotient = off(e // f, slip == "quotient", say)
        steps.append(say.pick(("Next the product:", "Then")) + f" {b} × {inner} = {product}.")
        steps.append(say.pick(("The division gives", "And")) + f" {e} ÷ {f} = {quotient}.")
        if slip == "sign":
            value = a + product + quotient
            steps.append(
                f"Now {a} + {product} = {a + product} and {a + product} + {quotient} = {value}."
            )
            return steps, str(value)
        value = a + product - quotient
        steps.append(
            f"Now {a} + {product} = {a + product} and {a + product} - {quotient} = {value}."
        )
        return steps, str(value)

    return Problem(prompt, work, ("left-to-right", "product", "quotient", "sign"))


ALL = (linear, ages, legs, series, quadratic, marbles, operations)
