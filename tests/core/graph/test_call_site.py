"""Call sites as plain data."""

import json

import pytest

from tvm_ext.core.graph.call_site import CallSite, Written
from tvm_ext.core.graph.provenance import Held
from tvm_ext.core.layout import Layout
from tvm_ext.runtime.plain import read


@pytest.mark.parametrize("layout", [None, Layout.blocked(4, 8), Layout((0, 2, 3, 1))])
def test_to_json_and_back(layout: Layout | None) -> None:
    written = Written("v", (1, 12, 3, 5), "float32", (Held("a"), Held("b", (("reshape", (12, 15)),))), layout)
    site = CallSite(3, ("conv", "relu"), (0, 2), (written,))
    assert read(CallSite, {**json.loads(json.dumps(site.as_dict())), "nodes": ["conv", "relu"]}) == site


def test_the_shape_of_the_memory() -> None:
    assert Written("v", (1, 12, 3, 5), "float32").memory_shape == (1, 12, 3, 5)
    assert Written("v", (1, 12, 3, 5), "float32", layout=Layout.blocked(4, 8)).memory_shape == (1, 2, 3, 5, 8)
