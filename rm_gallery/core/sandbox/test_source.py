"""What the text of code tests says of itself: its cases, whether it needs the answer's own objects,
how to make it wrong.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterable, Iterator, Sequence

from rm_gallery.core.sandbox.inside.suite import OTHER, SOLUTION_MODULES
from rm_gallery.core.text.blocks import parse_python

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_CAPTURES = frozenset(
    "next anext redirect_stdout redirect_stderr patch monkeypatch capsys signature asdict fields".split()
)
"""Functions that look at more than a value."""
_EQUALITIES = frozenset(
    "assertEqual assertListEqual assertDictEqual assertTupleEqual assertSetEqual".split()
)
_BUILTIN = frozenset(dir(builtins))


def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a test text; None when it does not parse, which the sandbox will tell."""
    tree = parse_python(text)
    return tree if isinstance(tree, ast.Module) else None


def cases_in(text: str) -> list[str]:
    """The cases of a test file in its order: test functions, and `Class.method` of test classes and
    `unittest` cases.
    """
    body = getattr(tree_of(text), "body", [])
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    cases: list[str] = []
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                cases += [name] * name.startswith("test")
            case ast.ClassDef(name=name) if name.startswith("Test") or _is_unittest(node, classes):
                cases += [f"{name}.{method}" for method in _methods(node, classes)]
    return cases


def _is_unittest(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    names = filter(None, map(_last_name, node.bases))
    return any(
        name.endswith("TestCase")
        or (name in classes and name != node.name and _is_unittest(classes[name], classes))
        for name in names
    )


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    names: list[str] = []
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            names += _methods(classes[base.id], classes)
    names += [item.name for item in node.body if isinstance(item, _Function)]
    return list(dict.fromkeys(name for name in names if name.startswith("test")))


def _last_name(node: ast.expr) -> str:
    """`b` of the names `b` and `a.b`; '' of anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _nodes(trees: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (node for tree in trees for node in ast.walk(tree))


def imports_in(trees: Sequence[ast.AST]) -> list[str]:
    """Modules that the tests import, those of the file under test left out."""
    names: list[str] = []
    for node in _nodes(trees):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                names.append(module)
    own = {*SOLUTION_MODULES, "pytest"}
    return [name for name in dict.fromkeys(names) if name.split(".")[0] not in own]


def defined_in(trees: Sequence[ast.AST]) -> set[str]:
    """Every name that the tests bind anywhere, names imported from the file under test left out."""
    bound: set[str] = set()
    for node in _nodes(trees):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.arg(arg=name)
            ):
                bound.add(name)
            case ast.ImportFrom(module=str(module)) if module in SOLUTION_MODULES:
                pass
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update((alias.asname or alias.name).split(".")[0] for alias in aliases)
    return bound


def needs_object(trees: Sequence[ast.AST], entry_point: str = "") -> bool:
    """Whether the tests look at what only the answer's own objects show.

    That is: what a call changed in place (a call whose result is dropped, with a variable as
    argument or as owner), an object of a class of the answer, its constants and exceptions, `next`,
    asyncio, functions handed over, decorators, printed text. It is read from the last text alone
    and what it builds on, so that no answer can choose how it is judged. A capital letter makes no
    class of `entry_point`.
    """
    given = defined_in(trees) | _BUILTIN
    nodes = list(_nodes(_built_on(trees)))
    local = {node.name for node in nodes if isinstance(node, _Function)}
    return any(_looks_inside(node, given, local, entry_point) for node in nodes)


def _built_on(trees: Sequence[ast.AST]) -> list[ast.AST]:
    """The last text, and those before it that touch a variable it takes from them."""
    bound, used = defined_in(trees[:-1]), [trees[-1]]
    wanted = (_names_read(trees[-1]) - defined_in(trees[-1:])) & bound
    for tree in reversed(trees[:-1]):
        if wanted & (_names_read(tree) | defined_in([tree])):
            used.append(tree)
            wanted |= _names_read(tree) & bound
    return used


def wanted_in(trees: Sequence[ast.AST]) -> set[str]:
    """Names that the tests read or import from the file under test and nobody but the answer can
    give.
    """
    imported = {
        alias.name
        for node in _nodes(trees)
        if isinstance(node, ast.ImportFrom) and node.module in SOLUTION_MODULES
        for alias in node.names
    }
    return (_names_read(*trees) - defined_in(trees) - _BUILTIN) | (imported - {"*"})


def _names_read(*trees: ast.AST) -> set[str]:
    names = (node for node in _nodes(trees) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}


def _looks_inside(node: ast.AST, given: set[str], local: set[str], entry_point: str) -> bool:
    def foreign(each: ast.AST | None) -> bool:
        return isinstance(each, ast.Name) and each.id not in given

    def handed(each: ast.AST) -> bool:
        return isinstance(each, ast.Lambda) or (isinstance(each, ast.Name) and each.id in local)

    match node:
        case ast.Expr(value=ast.Call(func=function, args=given_over)):
            return _of_foreign(function, foreign) and any(
                isinstance(each, ast.Name) for each in given_over
            )
        case ast.Call(func=function, args=plain, keywords=words):
            name, arguments = _last_name(function), [*plain, *(word.value for word in words)]
            if name in _CAPTURES:
                return True
            if foreign(function) and (
                (name[:1].isupper() and name != entry_point) or any(map(handed, arguments))
            ):
                return True
            started = [getattr(each, "func", None) for each in arguments if name == "run"]
            return name in _ASKING and any(map(foreign, [*arguments, *started]))
        case ast.ExceptHandler(type=ast.Tuple(elts=kinds)):
            return any(map(foreign, kinds))
        case ast.ExceptHandler(type=looked) | ast.withitem(context_expr=ast.Call(func=looked)):
            return foreign(looked)
        case ast.ClassDef(bases=bases, decorator_list=marks):
            return any(map(foreign, [*bases, *marks]))
        case ast.FunctionDef(decorator_list=marks) | ast.AsyncFunctionDef(decorator_list=marks):
            return any(foreign(getattr(mark, "func", mark)) for mark in marks)
        case ast.Compare(left=left, comparators=others):
            # a constant against a literal; two words of the answer would only agree with each other
            sides = [left, *others]
            return any(map(foreign, sides)) and any(map(_is_plain, sides))
    return isinstance(node, ast.Await)


_ASKING = frozenset("isinstance issubclass raises assertRaises run".split())


def _of_foreign(function: ast.expr, foreign: object) -> bool:
    while isinstance(function, (ast.Attribute, ast.Call)):
        function = function.value if isinstance(function, ast.Attribute) else function.func
    return callable(foreign) and bool(foreign(function))


MOST_CONTROLS = 8


def controls(text: str, case: str) -> list[str]:
    """The text with expectations made wrong, one of up to eight at a time and then all: no right
    answer passes any.

    Only what a right answer surely reaches is changed: statements of the case itself, of loops over
    literals and of `with`. An equality gets another expected value, an exception another type, any
    other assertion is negated. All at once is for what agrees with the first and compares the
    others with that. `case` is as `cases_in` names it, '' for the text.
    """
    tree = tree_of(text)
    if tree is None:
        return []
    places = [
        place
        for place, each in enumerate(_expectations(_body(copy.deepcopy(tree), case)))
        if _made_wrong(each)
    ]
    chosen = [{place} for place in places[:: max(1, -(-len(places) // MOST_CONTROLS))]]
    if len(places) > 1:
        chosen.append(set(places))
    return [_with_wrong(tree, case, each) for each in chosen]


def surely_asserts(text: str, case: str) -> bool:
    """Whether the case holds a literal against what a call gives, in a statement that is surely
    reached.
    """
    tree = tree_of(text)
    for each in _expectations(_body(tree, case)) if tree else ():
        sides = _compared(each)
        literal = any(
            _is_plain(side) and getattr(side, "value", side) is not None for side in sides
        )
        if literal and any(isinstance(side, ast.Call) for side in sides):
            return True
    return False


def _compared(statement: ast.stmt) -> list[ast.expr]:
    """Both sides of an equality that a statement asserts; nothing of any other statement."""
    match statement:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            return [left, right]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_])):
            return [left, right] if name in _EQUALITIES else []
    return []


def _with_wrong(tree: ast.Module, case: str, places: set[int]) -> str:
    changed = copy.deepcopy(tree)
    statements = list(_expectations(_body(changed, case)))
    for place in places:
        _made_wrong(statements[place])
    return ast.unparse(ast.fix_missing_locations(changed))


def _body(tree: ast.Module, case: str) -> list[ast.stmt]:
    body = tree.body
    for name in filter(None, case.split(".")):
        body = next(
            (
                node.body
                for node in body
                if isinstance(node, (*_Function, ast.ClassDef)) and node.name == name
            ),
            [],
        )
    return body


def _expectations(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        match node:
            case ast.Assert() | ast.Expr(value=ast.Call()):
                yield node
            case ast.With(items=items, body=inner) | ast.AsyncWith(items=items, body=inner):
                names = [ast.unparse(item.context_expr) for item in items]
                if any("aises" in name for name in names):
                    yield node
                elif not any("suppress" in name for name in names):
                    yield from _expectations(inner)
            case ast.For(iter=ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]), body=inner):
                yield from _expectations(inner)
            case ast.Return() | ast.If() | ast.Try() | ast.While():
                if any(
                    isinstance(each, (ast.Return, ast.Break, ast.Continue))
                    for each in ast.walk(node)
                ):
                    return


def _made_wrong(statement: ast.stmt) -> bool:
    sides = _compared(statement)
    if sides:
        place = 0 if _is_plain(sides[0]) and not _is_plain(sides[1]) else 1
        sides[place] = _another(sides[place])
    match statement:
        case ast.Assert() if sides:
            statement.test = ast.Compare(sides[0], [ast.Eq()], sides[1:])
        case ast.Assert(test=test):
            statement.test = ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method, args=arguments)) if sides:
            arguments[:2], method.attr = sides, "assertEqual"
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr="assertTrue" | "assertFalse"),
                args=[first, *_] as arguments,
            )
        ):
            arguments[0] = ast.UnaryOp(ast.Not(), first)
        case (
            ast.With(items=[ast.withitem(context_expr=ast.Call(args=[_, *_] as arguments))])
            | ast.AsyncWith(items=[ast.withitem(context_expr=ast.Call(args=[_, *_] as arguments))])
        ):
            arguments[0] = ast.Name("KeyboardInterrupt", ast.Load())
        case _:
            return False
    return True


def _is_plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _another(node: ast.expr) -> ast.expr:
    """Another value than this one, as `OTHER` makes it where the tests run; an object of the answer
    is made of other arguments.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=plain, keywords=words) if name[:1].isupper():
            arguments = [*plain, *(word.value for word in words)]
            if arguments and all(map(_is_plain, arguments)):
                node.args = list(map(_another, plain))
                for word in words:
                    word.value = _another(word.value)
                return node
    return ast.Call(ast.Name(OTHER, ast.Load()), [node], [])
