"""Finds the numbers that a script assigns to names, by reading its syntax tree."""

import ast
import math
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

RANGE_FUNCTIONS = {"range", "trange"}
# They keep the number of iterations.
ITERATION_WRAPPERS = {"tqdm", "enumerate", "reversed", "list", "tuple", "iter"}
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

NamedValues = Iterator[tuple[int, str, ast.expr]]  # line, name, expression


def iter_named_numbers(tree: ast.Module, pattern: re.Pattern[str]) -> Iterator[tuple[int, str, float]]:
    """Yield line, name and value of every number whose name matches; arithmetic expressions are evaluated."""
    values: dict[ast.expr, float | None] = {}  # cached, because one expression may have very many names
    for node in ast.walk(tree):
        for line, name, expression in _iter_named_values(node):
            if pattern.search(name):
                if expression not in values:
                    values[expression] = _evaluate_or_none(expression)
                if (number := values[expression]) is not None:
                    yield line, name, number


def _iter_named_values(node: ast.AST) -> NamedValues:
    """Yield everything that a syntax node gives a name to."""
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
    positional = [*node.posonlyargs, *node.args][::-1]  # reversed: the last parameters have the defaults
    pairs = (
        *zip(positional, node.defaults[::-1]),  # noqa: B905
        *zip(node.kwonlyargs, node.kw_defaults),  # noqa: B905
    )
    for argument, value in pairs:
        if value:
            yield argument.lineno, argument.arg, value


def _argparse_defaults(node: ast.Call) -> NamedValues:
    """Yield the defaults of command-line options: add_argument("-e", "--epochs", default=100)."""
    for keyword in node.keywords:
        if keyword.arg == "default":
            names = (text.lstrip("-").replace("-", "_") for text in _string_constants(node.args))
            yield from ((node.lineno, name, keyword.value) for name in names)


def _string_constants(nodes: Sequence[ast.expr | None]) -> Iterator[str]:
    yield from (
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _assignment_pairs(target: ast.expr, value: ast.expr) -> NamedValues:
    match target, value:
        case ((ast.Tuple() | ast.List()), (ast.Tuple() | ast.List())) if len(target.elts) == len(value.elts):
            for pair in zip(target.elts, value.elts, strict=True):
                yield from _assignment_pairs(*pair)
        case ast.Name(), _:
            yield target.lineno, target.id, value
        case ast.Attribute(), _:
            yield target.lineno, target.attr, value
        case ast.Subscript(slice=ast.Constant(value=str() as name)), _:
            yield target.lineno, name, value


def _evaluate_or_none(node: ast.expr) -> float | None:
    try:
        value = _evaluate(node)
    except (RecursionError, ZeroDivisionError, TypeError, ValueError):
        return None  # a root may be complex, a difference NaN
    except OverflowError:
        return math.inf
    return value if isinstance(value, float) else None


def _evaluate(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in OPERATORS:
            values = [_evaluate(operand)]
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in OPERATORS:
            values = [_evaluate(left), _evaluate(right)]
        case ast.Call(args=[first, *_] as args):
            function = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if function in ITERATION_WRAPPERS and isinstance(first, ast.Call):
                return _evaluate(first)
            return _range_length(function, args)
        case _:
            return None
    known = [value for value in values if value is not None]
    return OPERATORS[type(sign)](*known) if len(known) == len(values) else None


def _range_length(function: str, args: list[ast.expr]) -> float | None:
    """Return the number of iterations of a loop over range(...)."""
    bounds = [_evaluate(arg) for arg in args] if function in RANGE_FUNCTIONS and len(args) <= 3 else []
    match bounds:
        case [float(stop)]:
            return stop
        case [float(start), float(stop)]:
            return stop - start
        case [float(start), float(stop), float(step)]:
            return float(math.ceil((stop - start) / step))
    return None
