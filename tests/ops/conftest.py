"""Machines for the tests of scalar expressions: those of recipes."""

from tests.schedules.conftest import machine as machine
