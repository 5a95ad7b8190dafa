"""State of a process is in `core/per_process.py`, so that a forked process begins with new state."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCE = Path(__file__).parents[2] / "src"
# Modules that implement the registry, and the test kit, which users run in processes of their tests.
OUTSIDE = ("ftfile/core/per_process.py", "ftfile/testing/")
# State that a forked process inherits, each with the reason why this is right.
INHERITED = {
    "ftfile/core/arrow_start.py: _started": "static objects of C++, which also exist in the fork",
    "ftfile/core/log_wait.py: _held": "handlers of the fork's thread; the fork forgets them",
    "ftfile/core/extensions.py: _loaded": "places of code, which are the same in the fork",
    "ftfile/core/extensions.py: UPPER_PLACES": "places of code, set when the package is imported",
    "ftfile/source/decoding/casts.py: _CONVERTS": "rules that the module itself enters during its import",
    "ftfile/storage/calls.py: _visited_s": "a time; the clock is the same in the fork",
    "ftfile/storage/hdfs/credentials/jvm_tokens.py: _kept": "the JVMs whose tokens the fork uses, too",
    "ftfile/storage/registry.py: _places": "places of code, which are the same in the fork",
    "ftfile/storage/registry.py: _registered": "the file systems that the program has registered before the fork",
    "ftfile/tools/load/standard_input.py: _interrupted": "of the command, which ends after an interrupt",
}
# Calls that create something that a thread can hold, or that a forked process lacks.
_HELD = {
    *("Barrier", "BoundedSemaphore", "Condition", "Event", "Future", "LifoQueue", "Lock", "Pool", "PriorityQueue"),
    *("ProcessPoolExecutor", "Queue", "RLock", "Semaphore", "SimpleQueue", "Thread", "ThreadPoolExecutor", "Timer"),
}
_WEAK = {"WeakKeyDictionary", "WeakSet", "WeakValueDictionary"}
_CONTAINERS = {"Counter", "OrderedDict", "defaultdict", "deque", "dict", "fromkeys", "list", "set"}
_CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "update"),
}
_DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def _name_of(node: ast.AST | None) -> str:
    """Return the last part of a name: `Lock` of `threading.Lock`."""
    if isinstance(node, ast.Subscript):
        return _name_of(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _walk_now(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it that run at once, so without bodies of functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk_now(child)


def _called(node: ast.AST) -> set[str]:
    return {_name_of(inner.func) for inner in _walk_now(node) if isinstance(inner, ast.Call)}


def classes_with_locks(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names of classes whose objects contain locks or threads, also in objects that they create."""
    creates: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                inits = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
                calls = {name for init in inits for statement in init.body for name in _called(statement)}
                creates.setdefault(node.name, set()).update(calls, map(_name_of, node.bases))
    held = set(_HELD)
    while more := {name for name, calls in creates.items() if name not in held and calls & held}:
        held |= more
    return held


class _Changes(ast.NodeVisitor):
    """The names and attributes that a module changes at run time, within functions."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.globals: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals.update(node.names)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self.names.add(_name_of(node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            self.names.add(_name_of(node.func.value))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Attribute):
            self.names.add(node.target.attr)
        self.generic_visit(node)


def state_of(tree: ast.Module, with_locks: Iterable[str] = _HELD) -> list[str]:
    """Return the names of a module's state outside of the registry: of the module, and of its classes."""
    held, found = {*with_locks}, list[str]()
    changes = _Changes(tree)
    found += changes.globals
    for name, value in _assigned(tree):
        if _called(value) & (held | _WEAK) or (_is_container(value) and (_is_empty(value) or name in changes.names)):
            found.append(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name, value in _assigned(node):
                is_changed = _is_container(value) and name in changes.names
                if _called(value) & (held | _WEAK) or is_changed:
                    found.append(f"{node.name}.{name}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _wrongly_decorated(node, held)
    return sorted({*found})


def _assigned(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values that a module or a class assigns, or sets in itself, when it is executed."""
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in _walk_now(statement):
            if isinstance(node, ast.ClassDef):
                continue
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                        yield _name_of(name), node.value
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                yield _name_of(node.target), node.value


def _is_container(value: ast.expr) -> bool:
    return isinstance(value, _DISPLAYS) or (isinstance(value, ast.Call) and _name_of(value.func) in _CONTAINERS)


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List | ast.Set):
        return not value.elts
    return isinstance(value, ast.Call) and not value.args and not value.keywords


def _wrongly_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, held: set[str]) -> list[str]:
    """Return the name of a function with `functools.cached_property`, or whose cached results contain locks."""
    names = []
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(function) == "functools.cached_property":
            names.append(node.name)
        returned = set() if node.returns is None else {_name_of(inner) for inner in ast.walk(node.returns)}
        if _name_of(function) in ("cache", "lru_cache") and returned & held:
            names.append(node.name)
    return names


def _imports_cached_property(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "functools"
        and any(alias.name == "cached_property" for alias in node.names)
        for node in ast.walk(tree)
    )


def test_state_of_a_process_is_in_the_registry() -> None:
    trees = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(OUTSIDE):
            trees[name] = ast.parse(path.read_text())
    held = classes_with_locks(trees.values())
    found = {f"{module}: {name}" for module, tree in trees.items() for name in state_of(tree, held)}
    found |= {f"{module}: cached_property" for module, tree in trees.items() if _imports_cached_property(tree)}
    assert found == INHERITED.keys()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("_lock = threading.Lock()", ["_lock"]),
        ("_lock: RLock = RLock()", ["_lock"]),
        ("if True:\n    _changed = threading.Condition()", ["_changed"]),
        ("try:\n    _ended = Event()\nfinally:\n    pass", ["_ended"]),
        ("_pool = ThreadPoolExecutor(4)", ["_pool"]),
        ("_state = {'lock': Lock()}", ["_state"]),
        ("_first, _second = Lock(), 1", ["_first", "_second"]),
        ("_locks = [Lock() for _ in range(4)]", ["_locks"]),
        ("_waiting = queue.SimpleQueue[int]()", ["_waiting"]),
        ("_cache: dict[str, int] = {}", ["_cache"]),
        ("_cache = dict()", ["_cache"]),
        ("_cache = dict[str, int]()", ["_cache"]),
        ("_seen = set()", ["_seen"]),
        ("_idle = deque()", ["_idle"]),
        ("_known = weakref.WeakSet()", ["_known"]),
        ("_cache = {'a': 1}\ndef f(): _cache['b'] = 2", ["_cache"]),
        ("_cache = {'a': 1}\ndef f(): del _cache['a']", ["_cache"]),
        ("_cache = [1]\nasync def f(): _cache.append(2)", ["_cache"]),
        ("_cache = {1}\nf = lambda: _cache.add(2)", ["_cache"]),
        ("_count = 0\ndef f():\n    global _count\n    _count += 1", ["_count"]),
        ("class A:\n    lock = threading.Lock()", ["A.lock"]),
        ("def f():\n    class A:\n        lock = threading.Lock()", ["A.lock"]),
        ("class A:\n    cache: ClassVar = {}\n    def f(self): self.cache[1] = 2", ["A.cache"]),
        ("class A:\n    cache = [1]\n    @classmethod\n    def f(cls): cls.cache.append(2)", ["A.cache"]),
        ("class A:\n    known = WeakKeyDictionary()", ["A.known"]),
        ("class A:\n    def __init__(self): self.lock = Lock()\n_a = A()", ["_a"]),
        ("class A:\n    def __init__(self): self.lock = Lock()\nclass B(A): pass\n_b = B()", ["_b"]),
        (
            "class A:\n  def __init__(self): self.b = B()\nclass B:\n  def __init__(self): self.l = Lock()\na = A()",
            ["a"],
        ),
        ("@functools.lru_cache(4)\ndef pool() -> ThreadPoolExecutor | None: ...", ["pool"]),
        ("@cache\ndef lock() -> threading.Lock: ...", ["lock"]),
        ("class A:\n    @functools.cached_property\n    def size(self) -> int: ...", ["size"]),
    ],
)
def test_planted_state_is_found(code: str, names: list[str]) -> None:
    tree = ast.parse(code)
    assert state_of(tree, classes_with_locks([tree])) == names


@pytest.mark.parametrize(
    "code",
    [
        "_lock = PerProcess(threading.Lock)",
        "_lock = PerProcess(lambda: Lock())",
        "_cache: PerProcess[dict[str, int]] = PerProcess(dict)\ndef f(): _cache.here['a'] = 1",
        "_NAMES = {'a': 1}\ndef f(): return _NAMES['a']",
        "_NAMES = {'a': 1}\n_NAMES['b'] = 2",
        "def f():\n    lock = Lock()\n    found = {}\n    found['a'] = lock",
        "class A:\n    def __init__(self): self.lock = Lock()",
        "class A:\n    names = ('a', 'b')",
        "class A:\n    found: dict = field(default_factory=dict)\n    def f(self): self.found['a'] = 1",
        "@functools.lru_cache(4)\ndef size(a: int) -> int: ...",
    ],
)
def test_other_values_are_not_found(code: str) -> None:
    tree = ast.parse(code)
    assert state_of(tree, classes_with_locks([tree])) == []


def test_the_cached_property_of_functools_is_found() -> None:
    assert _imports_cached_property(ast.parse("from functools import cache, cached_property"))
    assert not _imports_cached_property(ast.parse("from ftfile.core.per_process import cached_property"))
