"""Word problems in Chinese: shopping, heads and legs, travel."""

from __future__ import annotations

from data.builders.common import Draw
from data.builders.math_core import Problem, Worked, off


def shopping(draw: Draw) -> Problem:
    """Two kinds of goods are bought and the change is asked."""
    one, two = draw.pick((("苹果", "西瓜"), ("铅笔盒", "书包"), ("毛巾", "水杯")))
    n, p, m, q = draw.between(3, 8), draw.between(4, 9), draw.between(2, 5), draw.between(12, 25)
    paid = (n * p + m * q) // 50 * 50 + 50
    prompt = f"小明买了{n}个{one}，每个{p}元，又买了{m}个{two}，每个{q}元。他付了{paid}元，应该找回多少元？"

    def work(slip: str, say: Draw) -> Worked:
        first, second = off(n * p, slip == "product", say), m * q
        total = first if slip == "one-kind-forgotten" else off(first + second, slip == "sum", say)
        steps = [f"{one}一共{n} × {p} = {first}元。"]
        if slip != "one-kind-forgotten":
            steps += [
                f"{two}一共{m} × {q} = {second}元。",
                f"总价是{first} + {second} = {total}元。",
            ]
        return [*steps, f"所以找回{paid} - {total} = {paid - total}元。"], str(paid - total)

    return Problem(prompt, work, ("product", "sum", "one-kind-forgotten"), chinese=True)


def legs(draw: Draw) -> Problem:
    """Chickens and rabbits in one cage."""
    birds, beasts = draw.between(8, 20), draw.between(5, 7)
    heads, feet = birds + beasts, 2 * birds + 4 * beasts
    prompt = f"鸡和兔子关在同一个笼子里，一共有{heads}个头，{feet}只脚。兔子有多少只？"

    def work(slip: str, say: Draw) -> Worked:
        base = off(2 * heads, slip == "product", say)
        extra = feet - base
        each = 4 if slip == "divided-by-four" else 2
        value = extra // each
        steps = [
            f"假设全是鸡，应该有2 × {heads} = {base}只脚。",
            f"多出来的脚有{feet} - {base} = {extra}只。",
        ]
        steps.append(f"每只兔子多{each}只脚，用{extra}除以{each}，得到{value}。")
        if slip == "other-animal":
            value = heads - value
        return [*steps, f"所以兔子有{value}只。"], str(value)

    return Problem(prompt, work, ("product", "divided-by-four", "other-animal"), chinese=True)


def travel(draw: Draw) -> Problem:
    """Two cars drive towards each other."""
    a, b, hours = draw.between(41, 58), draw.between(61, 79), draw.between(3, 6)
    prompt = f"甲车每小时行{a}千米，乙车每小时行{b}千米。两车从两地同时相向而行，{hours}小时后相遇。两地相距多少千米？"

    def work(slip: str, say: Draw) -> Worked:
        speed = b - a if slip == "speeds-subtracted" else off(a + b, slip == "sum", say)
        sign = f"{b} - {a}" if slip == "speeds-subtracted" else f"{a} + {b}"
        total = off(speed * hours, slip == "product", say)
        steps = [
            f"两车每小时一共靠近{sign} = {speed}千米。",
            f"{hours}小时一共行了{speed} × {hours} = {total}千米。",
        ]
        return [*steps, f"两地相距{total}千米。"], str(total)

    return Problem(prompt, work, ("speeds-subtracted", "sum", "product"), chinese=True)


ALL = (shopping, legs, travel)
