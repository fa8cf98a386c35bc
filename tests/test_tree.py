"""How large the tree is: modules in a folder."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterable

from tests.test_architecture import ROOT, Source, read_tree

MAX_MODULES_IN_A_FOLDER = 20


def crowded(sources: Iterable[Source]) -> list[str]:
    """Folders of library and tests with too many modules, each with their number."""
    modules = [source for source in sources if not source.is_init and source.path.startswith(("tvm_ext/", "tests/"))]
    count = Counter(os.path.dirname(source.path) for source in modules)
    return [f"{folder}: {n} modules" for folder, n in count.items() if n > MAX_MODULES_IN_A_FOLDER]


def test_a_folder_has_few_modules() -> None:
    assert not crowded(read_tree(ROOT))
    many = [Source(f"tvm_ext/a/m{k}.py", "", ast.parse("")) for k in range(MAX_MODULES_IN_A_FOLDER + 1)]
    assert crowded(many) == ["tvm_ext/a: 21 modules"]
