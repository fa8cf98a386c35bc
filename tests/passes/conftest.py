"""Fixtures of the pass tests."""

import pytest

from tests.passes.helpers import new_context
from tvm_ext.core.passes import CompileContext


@pytest.fixture
def context() -> CompileContext:
    """A compile context for this machine."""
    return new_context()
