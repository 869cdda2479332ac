"""Mutations of a module: every small change of its syntax tree that a test should notice.

A mutation is named by its number in the list of all mutations of a source text; the same text has
the same list. Not changed are annotations, imports, docstrings, decorators, options of classes and
prose: a text with a space in it is a sentence for people, whose wording is no behaviour; a script
in Lua is code. Nor are assertions, of which a zip that is strict is one: without them a sound
program does the same.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from mutation import lua

if TYPE_CHECKING:
    from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef

NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
UNCHANGED_NAMES: Final = frozenset({"__slots__", "__all__"})
TYPING_CALLS: Final = frozenset({"cast", "TypeVar", "ParamSpec", "NewType"})


class Unit(NamedTuple):
    """The outermost function around a node: its qualified name and first line."""

    name: str
    line: int


class Site(NamedTuple):
    """A node that may be changed, and where it hangs in its tree."""

    parent: ast.AST
    field: str
    at: int | None
    node: ast.AST
    scope: str  # the qualified name of the innermost function, class or assigned name
    unit: Unit | None  # None where the node is evaluated when the module is imported
    statement: ast.stmt  # the innermost one


class Mutation(NamedTuple):
    """One change, as its report shows it, and the tree that has it."""

    tree: ast.Module
    before: str
    after: str
    line: int
    site: Site


class Named(NamedTuple):
    """A mutation without its tree: what can be listed for a whole package."""

    path: str  # below src/lightgate
    scope: str
    line: int
    number: int


def listed(path: str, source: str) -> list[Named]:
    """All mutations of a source text."""
    places: list[Named] = []
    for site in sites(ast.parse(source)):
        line = getattr(site.node, "lineno", site.statement.lineno)
        for _ in changes(site.node):
            places.append(Named(path, site.scope, line, len(places)))
    return places


def described(source: str, scopes: set[str]) -> Iterator[tuple[str, int, str, str]]:
    """The mutations of some functions: the function, the number, the text before and after."""
    number = 0
    for site in sites(ast.parse(source)):
        for new in changes(site.node):
            if site.scope in scopes:
                before, after, _ = _shown(site.node, new)
                yield site.scope, number, before, after
            number += 1


def mutation(source: str, number: int) -> Mutation:
    """Make a mutation by its number."""
    tree = ast.parse(source)
    seen = 0
    for site in sites(tree):
        possible = changes(site.node)
        if seen + len(possible) > number:
            new = possible[number - seen]
            before, after, below = _shown(site.node, new)
            line = getattr(site.node, "lineno", site.statement.lineno) + below
            _put(site, new)
            ast.fix_missing_locations(tree)
            return Mutation(tree, before, after, line, site)
        seen += len(possible)
    raise LookupError(number)


def _shown(node: ast.AST, new: ast.AST) -> tuple[str, str, int]:
    """The text of a node before and after, and how many lines below its first the change is."""
    if script := _script(node):
        return lua.shown(script, _script(new))
    return _brief(node), _brief(new), 0


def _script(node: ast.AST) -> str:
    """The text of a script; empty for everything else."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) and lua.COMMAND in value else ""


def _brief(node: ast.AST) -> str:
    """The text of a node in one line; of a compound statement its head."""
    lines = ast.unparse(node).splitlines()
    if isinstance(node, ast.If | ast.While):
        return lines[0]
    return " ".join(line.strip() for line in lines)


def _put(site: Site, new: ast.AST) -> None:
    if isinstance(site.node, ast.expr | ast.stmt):
        ast.copy_location(new, site.node)
    if site.at is None:
        setattr(site.parent, site.field, new)
    else:
        getattr(site.parent, site.field)[site.at] = new


def sites(tree: ast.Module) -> Iterator[Site]:
    """The nodes of a module that may be changed, in the order of its text."""
    yield from _Walk().body(tree, tree.body)


class _Walk:
    """A walk over a tree that knows in which function and statement it is."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._unit: Unit | None = None
        self._statement: ast.stmt = ast.Pass()

    def body(self, parent: ast.AST, body: list[ast.stmt], field: str = "body") -> Iterator[Site]:
        for index, statement in enumerate(body):
            if _is_text(statement) or _is_for_types(statement):
                continue
            self._statement = statement
            if self._unit is not None:
                yield self._site(parent, field, index, statement)
                yield from self._inside(statement)
            else:
                bound = _bound_name(statement)
                self._names += bound
                yield from self._inside(statement)
                del self._names[len(self._names) - len(bound) :]

    def _inside(self, node: ast.AST) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._function(node)
            return
        if isinstance(node, ast.ClassDef):
            self._names.append(node.name)
            yield from self.body(node, node.body)
            self._names.pop()
            return
        for field, value in ast.iter_fields(node):
            if _is_left_alone(node, field):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from self.body(node, value, field)
                if isinstance(node, ast.stmt):
                    self._statement = node
            elif isinstance(value, list):
                for index, one in enumerate(value):
                    yield from self._node(node, field, index, one)
            else:
                yield from self._node(node, field, None, value)

    def _node(self, parent: ast.AST, field: str, index: int | None, node: object) -> Iterator[Site]:
        if not isinstance(node, ast.AST) or isinstance(node, ast.expr_context):
            return
        if isinstance(parent, ast.JoinedStr) and isinstance(node, ast.Constant):
            if not _is_prose(parent):
                yield self._site(parent, field, index, node)
            return
        outside = self._statement
        if isinstance(node, ast.ExceptHandler):
            self._statement = node.body[0]
        yield self._site(parent, field, index, node)
        self._statement = outside
        yield from self._inside(node)

    def _function(self, node: Function) -> Iterator[Site]:
        self._names.append(node.name)
        for field in ("defaults", "kw_defaults"):
            for index, default in enumerate(getattr(node.args, field)):
                yield from self._node(node.args, field, index, default)
        outside = self._unit
        if outside is None:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            self._unit = Unit(".".join(self._names), first)
        yield from self.body(node, node.body)
        self._unit = outside
        self._names.pop()

    def _site(self, parent: ast.AST, field: str, index: int | None, node: ast.AST) -> Site:
        scope = ".".join(self._names)
        return Site(parent, field, index, node, scope, self._unit, self._statement)


def _bound_name(statement: ast.stmt) -> list[str]:
    """The name that a statement of a module or class gives to its value."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        return [target.id] if isinstance(target, ast.Name) else []
    return []


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_for_types(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(statement, ast.If):
        return isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(one, ast.Name) and one.id in UNCHANGED_NAMES for one in targets)
    return False


def _is_left_alone(node: ast.AST, field: str) -> bool:
    """Whether a field holds types, the parts of a sentence, or an assertion."""
    if field in {"annotation", "returns", "decorator_list", "format_spec"}:
        return True
    if isinstance(node, ast.keyword) and field == "value":
        return node.arg == "strict" and isinstance(node.value, ast.Constant)  # of a zip
    if isinstance(node, ast.Subscript) and field == "slice":
        return isinstance(node.value, ast.Name) and node.value.id == "Literal"
    return _is_typing(node) and field in {"args", "keywords"}


def _is_typing(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in TYPING_CALLS
    )


def changes(node: ast.AST) -> list[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.stmt):
        return _of_statement(node)
    if isinstance(node, ast.expr):
        return _of_expression(node)
    if isinstance(node, ast.ExceptHandler) and not _raises(node.body):
        again = copy.deepcopy(node)
        again.body = [ast.Raise()]
        return [again]
    if isinstance(node, ast.comprehension):
        return [
            _with(node, ifs=[*node.ifs[:at], *node.ifs[at + 1 :]]) for at in range(len(node.ifs))
        ]
    return []


def _raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[0], ast.Raise)


def _of_statement(node: ast.stmt) -> list[ast.AST]:
    found: list[ast.AST] = []
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise():
            found = [ast.Pass()]
        case ast.Delete(targets=[ast.Attribute() | ast.Subscript(), *_]):
            found = [ast.Pass()]
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            found = [ast.Pass(), _with(node, op=ARITHMETIC[type(node.op)]())]
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            found = [ast.Pass()]
        case ast.Return(value=value) if value is not None and not _is_nothing(value):
            found = [ast.Return(ast.Constant(None))]
        case ast.Break():
            found = [ast.Continue()]
        case ast.Continue():
            found = [ast.Break()]
        case ast.If() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            found = [_with(node, test=ast.UnaryOp(ast.Not(), node.test))]
    return found


def _of_expression(node: ast.expr) -> list[ast.AST]:
    found: list[ast.AST] = []
    match node:
        case ast.Compare(ops=[op]):
            tables = (NEGATED, BOUNDARY)
            found = [_with(node, ops=[table[type(op)]()]) for table in tables if type(op) in table]
        case ast.Compare():
            found = [_compared(node, at) for at, op in enumerate(node.ops) if type(op) in BOUNDARY]
        case ast.BoolOp():
            found = [_with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())]
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            found = [node.operand]
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_literal(node.left):
            found = [_with(node, op=ARITHMETIC[type(node.op)]())]
        case ast.IfExp() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            found = [_with(node, test=ast.UnaryOp(ast.Not(), node.test))]
        case ast.Call() if not _is_typing(node):
            found = [
                _with(node, keywords=[*node.keywords[:at], *node.keywords[at + 1 :]])
                for at, one in enumerate(node.keywords)
                if one.arg is not None and not _is_prose(one.value) and not _asserts(node, one)
            ]
        case ast.Constant():
            found = [ast.Constant(new) for new in _other_values(node.value)]
    return found


def _asserts(call: ast.Call, given: ast.keyword) -> bool:
    """Whether an argument only says that nothing is wrong: the `strict` of a zip."""
    return given.arg == "strict" and isinstance(call.func, ast.Name) and call.func.id == "zip"


def _other_values(value: object) -> list[bool | int | float | str | bytes]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1] if value > 1 else [value + 1]
        case float():
            return [value * 2 or 1.0]
        case str() if lua.COMMAND in value or " " not in value:
            return list(lua.changed(value)) if lua.COMMAND in value else [f"XX{value}"]
        case bytes() if b" " not in value:
            return [b"XX" + value]
    return []


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _compared(node: ast.Compare, at: int) -> ast.AST:
    ops = list(node.ops)
    ops[at] = BOUNDARY[type(ops[at])]()
    return _with(node, ops=ops)


def _is_nothing(node: ast.expr) -> bool:
    """Whether this is None, or False, which no caller tells from None."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _is_literal(node: ast.expr) -> bool:
    """Whether this is the left side of a formatting with %."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_prose(node: ast.expr) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and " " in one.value
        for one in parts
    )
