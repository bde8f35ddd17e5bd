"""vLLM's own Python files, as text: their definitions, without importing any of them."""

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CORE = "vllm.v1.core"
"""The package that zones depend on most: all of it is examined, whichever module imports it."""
_ROUTE = re.compile(r"router\.(get|post|put|patch|delete|websocket|add_api_route)\(\s*\"(/[^\"]*)\"")
_FLAG = re.compile(r"\"(--[a-z][a-z0-9-]*)\"")


@dataclass(slots=True)
class Module:
    """The definitions of one file."""

    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    """Functions by name; methods with their class's name before it."""
    fields: dict[str, str] = field(default_factory=dict)
    """Declarations or initial values of attributes, by name, with the class's name before it."""
    names: set[str] = field(default_factory=set)
    """All that is defined or imported in it, and each attribute that is used there."""


class Package:
    """A vLLM, read from the folder of its Python files.

    Args:
        folder: ``vllm`` in some environment.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def version(self) -> str:
        """The version from ``_version.py``."""
        found = re.search(r"^__version__ = .*?'([^']+)'", (self.folder / "_version.py").read_text(), re.MULTILINE)
        return found[1] if found else "?"

    @cached_property
    def core(self) -> frozenset[str]:
        """The names of the modules of its scheduler core."""
        folder = self.folder.joinpath(*CORE.split(".")[1:])
        paths = (path.relative_to(self.folder.parent).with_suffix("") for path in folder.rglob("*.py"))
        return frozenset(".".join(path.parts).removesuffix(".__init__") for path in paths)

    def path(self, module: str) -> Path | None:
        """The file of a module; None if there is none."""
        base = self.folder.joinpath(*module.split(".")[1:])
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def module(self, name: str) -> Module:
        """Returns the definitions of a module; none if it does not exist."""
        path = self.path(name)
        return Module() if path is None else _read(path.read_text())

    def has(self, module: str, name: str) -> bool:
        """Whether something can be imported from a module."""
        return self.path(f"{module}.{name}") is not None or name in self.module(module).names

    def where(self, name: str) -> list[str]:
        """The modules that define a class or a function at their top."""
        defines = re.compile(rf"^(?:class|def|async def) {re.escape(name)}\b", re.MULTILINE)
        found = (path for path in sorted(self.folder.rglob("*.py")) if defines.search(path.read_text()))
        return [".".join(path.relative_to(self.folder.parent).with_suffix("").parts) for path in found]

    def routes(self) -> Iterator[tuple[str, str]]:
        """Yields method and path of all declared routes, including those that no machine or model has turned on."""
        for file in (self.folder / "entrypoints").rglob("*.py"):
            for method, path in _ROUTE.findall(file.read_text()):
                yield {"websocket": "websocket", "add_api_route": "POST"}.get(method, method.upper()), path

    def flags(self) -> Set[str]:
        """The flags of its commands."""
        files = [self.folder / "engine" / "arg_utils.py", *(self.folder / "entrypoints").rglob("*.py")]
        return {flag for file in files for flag in _FLAG.findall(file.read_text())}


def _read(text: str) -> Module:
    module, tree = Module(), ast.parse(text)
    for statement in tree.body:
        _define(module, statement, "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module.names.add(node.attr)
        elif isinstance(node, ast.alias):
            module.names.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            module.names.add(node.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            module.names.add(node.name)
    return module


def _define(module: Module, statement: ast.stmt, owner: str) -> None:
    match statement:
        case ast.ClassDef(name=name, body=body):
            for each in body:
                _define(module, each, f"{name}.")
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            module.functions[owner + name] = statement
            if name == "__init__":
                for node in ast.walk(statement):
                    _note_attribute(module, node, owner)
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
            module.fields[owner + name] = ast.unparse(annotation)


def _note_attribute(module: Module, node: ast.AST, owner: str) -> None:
    match node:
        case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
            module.fields[owner + name] = ast.unparse(annotation)
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
            # For an object, note its class; the arguments are noted with the class.
            made = ast.unparse(value.func) + "(…)" if isinstance(value, ast.Call) else ast.unparse(value)
            module.fields.setdefault(owner + name, f"= {made}")
