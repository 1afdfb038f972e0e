"""The numbers that a script gives names to, as far as its text tells."""

import ast
import math
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

RANGE_FUNCTIONS = {"range", "trange"}
ITERATION_WRAPPERS = {
    "tqdm",
    "enumerate",
    "reversed",
    "list",
    "tuple",
    "iter",
}  # what goes round as often as what it is given
OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

NamedValues = Iterator[tuple[int, str, ast.expr]]


def iter_named_numbers(tree: ast.Module, wanted: re.Pattern[str]) -> Iterator[tuple[int, str, float]]:
    """The line, the name and the value of every number that has such a name; sums and the like are worked out."""
    known: dict[ast.expr, float | None] = {}  # one sum may have very many names
    for node in ast.walk(tree):
        for line, called, value in _iter_named_values(node):
            if wanted.search(called):
                if value not in known:
                    known[value] = _evaluate_or_none(value)
                if (number := known[value]) is not None:
                    yield line, called, number


def _iter_named_values(node: ast.AST) -> NamedValues:
    """Whatever a piece of a script gives a name to, with the line."""
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _assignment_pairs(target, node.value)
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            yield from _assignment_pairs(node.target, value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield from _assignment_pairs(node.target, node.iter)
        case ast.keyword(arg=str() as name):
            yield node.lineno, name, node.value
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                yield from ((value.lineno, name, value) for name in _string_constants([key]))
        case ast.arguments():
            yield from _parameter_defaults(node)
        case ast.Call():
            yield from _argparse_defaults(node)


def _parameter_defaults(node: ast.arguments) -> NamedValues:
    some = [*node.posonlyargs, *node.args][::-1]  # the last ones have the defaults
    for argument, value in (*zip(some, node.defaults[::-1]), *zip(node.kwonlyargs, node.kw_defaults)):  # noqa: B905
        if value:
            yield argument.lineno, argument.arg, value


def _argparse_defaults(node: ast.Call) -> NamedValues:
    """Of a command line: add_argument("-e", "--epochs", default=100)."""
    for option in node.keywords:
        if option.arg == "default":
            names = (text.lstrip("-").replace("-", "_") for text in _string_constants(node.args))
            yield from ((node.lineno, name, option.value) for name in names)


def _string_constants(nodes: Sequence[ast.expr | None]) -> Iterator[str]:
    yield from (
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _assignment_pairs(target: ast.expr, value: ast.expr) -> NamedValues:
    match target, value:
        case ((ast.Tuple() | ast.List()), (ast.Tuple() | ast.List())) if len(target.elts) == len(value.elts):
            for each in zip(target.elts, value.elts, strict=True):
                yield from _assignment_pairs(*each)
        case ast.Name(), _:
            yield target.lineno, target.id, value
        case ast.Attribute(), _:
            yield target.lineno, target.attr, value
        case ast.Subscript(slice=ast.Constant(value=str() as name)), _:
            yield target.lineno, name, value


def _evaluate_or_none(node: ast.expr) -> float | None:
    try:
        value = _evaluate(node)
    except (
        RecursionError,
        ZeroDivisionError,
        TypeError,
        ValueError,
    ):  # a root may be complex, a difference no number
        return None
    except OverflowError:
        return math.inf
    return value if isinstance(value, float) else None


def _evaluate(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.UnaryOp(op=sign, operand=one) if type(sign) in OPERATORS:
            values = [_evaluate(one)]
        case ast.BinOp(op=sign, left=one, right=other) if type(sign) in OPERATORS:
            values = [_evaluate(one), _evaluate(other)]
        case ast.Call(args=[first, *_] as args):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            return (
                _evaluate(first)
                if called in ITERATION_WRAPPERS and isinstance(first, ast.Call)
                else _range_length(called, args)
            )
        case _:
            return None
    known = [value for value in values if value is not None]
    return OPERATORS[type(sign)](*known) if len(known) == len(values) else None


def _range_length(called: str, args: list[ast.expr]) -> float | None:
    """How often a loop over range(...) goes round."""
    numbers = [_evaluate(each) for each in args] if called in RANGE_FUNCTIONS and len(args) <= 3 else []
    match numbers:
        case [float(stop)]:
            return stop
        case [float(start), float(stop)]:
            return stop - start
        case [float(start), float(stop), float(step)]:
            return float(math.ceil((stop - start) / step))
    return None
