"""Machines for the tests of scalar expressions: those of recipes."""

from __future__ import annotations

from tests.schedules.conftest import machine as machine
