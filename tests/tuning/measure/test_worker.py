"""Workers in processes of their own: each asks Linux for the tile registers that its machine's kernels need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation import FOLDER, GRANTED
from tests.emulation.execution import MACHINE, ON_HARDWARE
from tests.schedules.narrow import needs
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.tuning.measure import LocalMeasurer, MeasureError

from .stored_tasks import DOTS, INSTRUCTIONS, TILES, stored

pytestmark = pytest.mark.long
#: In this process all are run by `test_workbench.py`.
KINDS = ("bf16", "u8")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder where workers leave the names of the instructions they emulate."""
    folder = tmp_path_factory.mktemp("executed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        yield folder


@pytest.fixture(scope="module")
def tiles(executed: Path) -> Iterator[LocalMeasurer]:
    """Workers for a machine with tile registers."""
    plugins = [] if ON_HARDWARE else [GRANTED]
    with LocalMeasurer(MACHINE, 2, plugins=plugins, cold=0.1, run_timeout=60, build_timeout=60) as measurer:
        yield measurer


@pytest.fixture(scope="module")
def dots() -> Iterator[LocalMeasurer]:
    """Workers for this machine."""
    with LocalMeasurer(Machine.detect(None, 1), 2, cold=0.1, run_timeout=60, build_timeout=60) as measurer:
        yield measurer


def check(measurer: LocalMeasurer, recipe: Recipe, kind: str) -> None:
    one = stored(recipe, kind)
    results = list(measurer.measure(one.task, one.configs))
    assert len(results) == len(one.configs) > 0
    for result in results:
        assert result.error == "", result
        assert result.costs and result.check is not None and result.check < 0.01


@pytest.mark.parametrize(
    ("recipe", "kind"), [*zip(TILES, KINDS, strict=True)], ids=lambda part: getattr(part, "name", "")
)
def test_tasks_of_tile_registers(tiles: LocalMeasurer, executed: Path, recipe: Recipe, kind: str) -> None:
    check(tiles, recipe, kind)
    assert ON_HARDWARE or (executed / INSTRUCTIONS[kind]).exists()


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [pytest.param(DOTS[0], "bf16", marks=needs["bf16"]), pytest.param(DOTS[1], "u8", marks=needs["int8"])],
)
def test_tasks_of_dot_products(dots: LocalMeasurer, recipe: Recipe, kind: str) -> None:
    check(dots, recipe, kind)


@pytest.mark.skipif(ON_HARDWARE, reason="this CPU has tile registers")
def test_a_machine_that_is_not_this_one_is_said() -> None:
    one = stored(TILES[0], "bf16")
    with LocalMeasurer(MACHINE, 1) as measurer, pytest.raises(MeasureError, match="it needs amx-bf16, amx-int8"):
        list(measurer.measure(one.task, one.configs))
