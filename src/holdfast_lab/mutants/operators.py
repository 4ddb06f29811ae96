"""The possible mutations of a module. Each is one change of its syntax tree.

Not mutated: strings, annotations, assertions, type-checking code, and names.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""Shift the boundary by one, or reverse the comparison."""
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any"}
TEXT_LIMIT = 16
"""A change is shown inside an expression of about this length, so that its place is clear."""

type_only = {"annotation", "returns", "decorator_list", "type_comment", "type_params"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Mutant:
    """One mutation: replaces `old` by `new` in the field `name` (at `index`, for a list) of `parent`."""

    parent: ast.AST
    name: str
    index: int | None
    new: ast.AST | list[ast.AST] | None
    function: tuple[str, ...]
    """Names of the enclosing classes and functions, outermost first, down to the outermost function."""
    inside: bool
    """Whether the change is in the body of that function, and so changes only that function's code."""
    first_line: int
    last_line: int
    """Lines of the statement; for a compound statement, of its head."""
    change: str
    key: str = ""
    """Unique key that does not depend on line numbers: the function and the change."""

    @contextmanager
    def made(self) -> Iterator[None]:
        place = getattr(self.parent, self.name)
        if self.index is None:
            setattr(self.parent, self.name, self.new)
            try:
                yield
            finally:
                setattr(self.parent, self.name, place)
        else:
            old = place[self.index]
            place[self.index] = self.new
            try:
                yield
            finally:
                place[self.index] = old


@dataclass
class Site:
    names: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    inside: bool = False
    first_line: int = 0
    last_line: int = 0
    exprs: tuple[ast.expr, ...] = ()
    """Enclosing expressions within the statement, outermost first."""
    bound: set[str] = field(default_factory=set)
    """Local names that already have a value."""


def mutants(tree: ast.Module) -> list[Mutant]:
    """All mutants of a module, ordered by line, without duplicates."""
    found: list[Mutant] = []
    _walk(tree, Site(), found)
    distinct: dict[tuple[int, int, str], Mutant] = {}
    for mutant in found:
        distinct.setdefault((mutant.first_line, mutant.last_line, _signature(mutant)), mutant)
    seen: Counter[str] = Counter()
    for mutant in distinct.values():
        key = f"{'.'.join(mutant.function) or 'module'}: {mutant.change}"
        seen[key] += 1
        mutant.key = key if seen[key] == 1 else f"{key} ({seen[key]})"
    return list(distinct.values())


def _signature(mutant: Mutant) -> str:
    return f"{id(mutant.parent)} {mutant.name} {mutant.index} {mutant.change.rpartition(' -> ')[2]}"


def _head_end(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        return max(node.lineno, body[0].lineno - 1)
    if isinstance(node, ast.Match):
        return node.subject.end_lineno or node.lineno
    return node.end_lineno or node.lineno


def _walk(node: ast.AST, site: Site, found: list[Mutant]) -> None:
    for name, value in ast.iter_fields(node):
        if name in type_only or (isinstance(node, ast.AnnAssign) and name == "target"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if isinstance(child, ast.AST) and not _skipped(child):
                _visit(node, name, index, child, site, found)


def _skipped(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr(), right=ast.Name())):
            return True  # a union of types by name
        case ast.Expr(value=ast.Constant()):
            return True  # a docstring
    return False


def _visit(
    parent: ast.AST, name: str, index: int | None, node: ast.AST, site: Site, found: list[Mutant]
) -> None:
    inner = site
    match node:
        case ast.ClassDef():
            inner = Site((*site.names, node.name), site.function)
        case ast.FunctionDef() | ast.AsyncFunctionDef() if not site.function:
            path = (*site.names, node.name)
            inner = Site(
                path, path, bound={one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            )
        case ast.arguments():
            # Default values belong to the function, not to its code.
            inner = Site(site.names, site.function, False, site.first_line, site.last_line)
        case ast.stmt():
            inner = Site(site.names, site.function, bool(site.function), bound=site.bound)
        case ast.expr():
            inner = Site(
                site.names, site.function, site.inside, site.first_line, site.last_line,
                (*site.exprs, node), site.bound,
            )  # fmt: skip
    if isinstance(node, ast.stmt):
        inner.first_line, inner.last_line = node.lineno, _head_end(node)

    def mutate(new: ast.AST, change: str, *, target: tuple[ast.AST, str, int | None] | None = None) -> None:
        where = target or (parent, name, index)
        ast.copy_location(new, node)
        ast.fix_missing_locations(new)
        found.append(
            Mutant(
                *where, new, inner.function, inner.inside, inner.first_line, inner.last_line, change
            )
        )  # fmt: skip

    if isinstance(node, ast.stmt):
        for new, change in _statements(node, site):
            mutate(new, change)
    elif isinstance(node, ast.expr):
        for new in [*_expressions(node), *_conditions(parent, name, node)]:
            mutate(new, _shown(site.exprs, node, new))
    elif isinstance(node, ast.cmpop):
        compare = site.exprs[-1]
        for other in COMPARISONS[type(node)]:
            mutate(other(), _shown_part(site.exprs, compare, (parent, name, index), other()))
    elif isinstance(node, ast.operator) and type(node) in ARITHMETIC:
        other_operator = ARITHMETIC[type(node)]()
        if isinstance(parent, ast.AugAssign):
            changed = ast.AugAssign(parent.target, other_operator, parent.value)
            mutate(other_operator, f"{ast.unparse(parent)} -> {ast.unparse(changed)}")
        else:
            mutate(
                other_operator,
                _shown_part(site.exprs, site.exprs[-1], (parent, name, index), other_operator),
            )
    _walk(node, inner, found)
    if isinstance(node, ast.stmt):
        site.bound |= {
            one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }


# -- statements


def _statements(node: ast.stmt, site: Site) -> Iterator[tuple[ast.stmt, str]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()) | ast.Delete():
            yield _dropped(node)
        case ast.Raise():
            yield _dropped(node)
        case ast.AugAssign():
            yield _dropped(node)
        case ast.Assign(targets=targets) if all(_repeats(target, site) for target in targets):
            yield _dropped(node)
        case ast.AnnAssign(target=target, value=ast.expr()) if _repeats(target, site):
            yield _dropped(node)
        case ast.Continue():
            yield _dropped(node)
            yield ast.Break(), "continue -> break"
        case ast.Break():
            yield _dropped(node)
            yield ast.Continue(), "break -> continue"
        case ast.Return(value=None):
            yield _dropped(node)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None)), f"{ast.unparse(node)} -> return None"


def _dropped(node: ast.stmt) -> tuple[ast.stmt, str]:
    return ast.Pass(), f"{ast.unparse(node)} -> pass"


def _repeats(target: ast.expr, site: Site) -> bool:
    """Whether the function still runs without this assignment."""
    match target:
        case ast.Attribute() | ast.Subscript():
            return bool(site.function)
        case ast.Name(id=name):
            return bool(site.function) and name in site.bound
        case ast.Tuple(elts=parts):
            return all(_repeats(part, site) for part in parts)
    return False


# -- expressions


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for left_out in range(len(values)):
                rest = [value for index, value in enumerate(values) if index != left_out]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(number)):
            yield ast.Constant(0 if number == 1 else number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            yield ast.Call(ast.Name(FUNCTIONS[name], ast.Load()), node.args, node.keywords)
    if isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    args = node.args
    named = ast.unparse(node.func).rpartition(".")[2]
    if named in {"cast", "isinstance", "note"}:
        return
    two = len(args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in args[:2])
    if two and named not in {"max", "min"} and ast.dump(args[0]) != ast.dump(args[1]):
        yield ast.Call(node.func, [args[1], args[0], *args[2:]], node.keywords)
    ordering = [keyword for keyword in node.keywords if keyword.arg in {"key", "default", "reverse"}]
    for keyword in ordering:
        yield ast.Call(node.func, args, [other for other in node.keywords if other is not keyword])


def _conditions(parent: ast.AST, name: str, node: ast.expr) -> Iterator[ast.expr]:
    conditional = (isinstance(parent, ast.If | ast.IfExp | ast.While) and name == "test") or (
        isinstance(parent, ast.comprehension) and name == "ifs"
    )
    if not conditional or isinstance(node, ast.Constant):
        return
    plain = isinstance(node, ast.Compare) and len(node.ops) == 1
    if not plain and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        yield ast.UnaryOp(ast.Not(), node)
    if not isinstance(parent, ast.While):
        yield ast.Constant(True)
    yield ast.Constant(False)


# -- the text of a change


def _shown(exprs: tuple[ast.expr, ...], node: ast.expr, new: ast.expr) -> str:
    old_text, new_text = (
        ast.unparse(node),
        ast.unparse(ast.fix_missing_locations(ast.copy_location(new, node))),
    )
    return _in_context(exprs, node, old_text, new_text)


def _shown_part(
    exprs: tuple[ast.expr, ...],
    around: ast.expr,
    place: tuple[ast.AST, str, int | None],
    new: ast.AST,
) -> str:
    old_text = ast.unparse(around)
    with Mutant(*place, new, (), False, 0, 0, "").made():
        new_text = ast.unparse(around)
    return _in_context(exprs[:-1], around, old_text, new_text)


def _in_context(exprs: tuple[ast.expr, ...], node: ast.expr, old: str, new: str) -> str:
    change = f"{old} -> {new}"
    if len(old) >= TEXT_LIMIT:
        return change
    for outer in reversed(exprs):
        text = ast.unparse(outer)
        if outer is not node and len(text) >= TEXT_LIMIT:
            return f"in {text}: {change}"
    return f"in {ast.unparse(exprs[0])}: {change}" if exprs and exprs[0] is not node else change
