"""Reading a MetaSchedule database: refusals with their reason, damaged lines, kernels with bound variables."""

import json
from pathlib import Path

import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.schedule_database import RECORDS, WORKLOADS, MetaScheduleDatabase, normalized

MACHINE = Machine.detect(None, 2)


def kernel(n: int = 8, let: bool = False) -> tirx.PrimFunc:
    """y = x + 1, or with x bound to a name."""

    def value(i):
        x = tirx.Var("v", "float32")
        return tirx.Let(x, a[i], x + x) if let else a[i] + tirx.const(1, "float32")

    a = te.placeholder((n,), name="a")
    return te.create_prim_func([a, te.compute((n,), value, name="y")])


def write(folder: Path, *costs: float, machine: Machine = MACHINE, factor: int = 2) -> None:
    """Records of `kernel()` whose loop is split by the number of the record + `factor`."""
    database = JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    mod = normalized(kernel())
    workload = database.commit_workload(mod)
    for number, cost in enumerate(costs):
        sch = Schedule(mod)
        sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, factor + number])
        database.commit_tuning_record(TuningRecord(sch.trace, workload, [cost], machine.target(), None))


def inner_extent(sch: Schedule) -> int:
    return int(sch.get(sch.get_loops(sch.get_sblock("y"))[1]).extent)


def test_the_fastest_record_is_taken(tmp_path: Path) -> None:
    write(tmp_path, 3.0, 1.0, 2.0)
    lookup = MetaScheduleDatabase(tmp_path).find(kernel(), MACHINE)
    assert lookup.seconds == 1.0
    assert inner_extent(lookup.schedule) == 3


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (MACHINE.with_threads(3), "record refused: it is for another number of threads: 2, not 3"),
        (Machine.detect("x86-64-v2", 2), "record refused: it is for another CPU"),
    ],
)
def test_a_record_for_another_machine_is_refused(tmp_path: Path, machine: Machine, reason: str) -> None:
    write(tmp_path, 1.0)
    lookup = MetaScheduleDatabase(tmp_path).find(kernel(), machine)
    assert lookup.schedule is None
    assert lookup.reason.startswith(reason)


def test_records_of_several_machines_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, 1.0)
    write(tmp_path, 5.0, machine=MACHINE.with_threads(1), factor=4)
    assert inner_extent(MetaScheduleDatabase(tmp_path).find(kernel(), MACHINE.with_threads(1)).schedule) == 4


def test_the_kernel_itself_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, 1.0)
    function = kernel()
    before = str(function)
    lookup = MetaScheduleDatabase(tmp_path).find(function, MACHINE).schedule
    lookup.vectorize(lookup.get_loops(lookup.get_sblock("y"))[1])
    assert str(function) == before


def test_another_kernel_has_no_schedule(tmp_path: Path) -> None:
    write(tmp_path, 1.0)
    lookup = MetaScheduleDatabase(tmp_path).find(kernel(9), MACHINE)
    assert (lookup.schedule, lookup.reason) == (None, "no record of this kernel")


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    write(tmp_path, 1.0, 2.0)
    good = (tmp_path / RECORDS).read_text()
    (tmp_path / RECORDS).write_text('[0, "half\n' + '{"no": "record"}\n' + good)
    database = MetaScheduleDatabase(tmp_path)
    assert database.find(kernel(), MACHINE).seconds == 1.0
    assert [problem.split(" ")[0] for problem in database.problems] == [f"{RECORDS}:1:", f"{RECORDS}:2:"]


def test_a_trace_that_does_not_fit_is_a_reason(tmp_path: Path) -> None:
    write(tmp_path, 1.0)
    line = json.loads((tmp_path / RECORDS).read_text())
    line[1][0][0][0][2] = ["no such block", "main"]
    (tmp_path / RECORDS).write_text(json.dumps(line) + "\n")
    assert MetaScheduleDatabase(tmp_path).find(kernel(), MACHINE).reason.startswith("its trace cannot be replayed")


def test_a_folder_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=WORKLOADS):
        MetaScheduleDatabase(tmp_path)


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    write(tmp_path, 1.0)
    database = MetaScheduleDatabase(tmp_path)
    before = database.fingerprint
    write(tmp_path, 2.0)
    assert database.fingerprint != before


def test_normalized_kernels_are_equal_whatever_a_compile_notes() -> None:
    noted = kernel().with_attr({"global_symbol": "add_7", "op_pattern": 8})
    assert tvm_ffi.structural_equal(normalized(noted), normalized(kernel()))
    assert not tvm_ffi.structural_equal(normalized(kernel(9)), normalized(kernel()))


def test_tvm_can_count_the_operations_of_a_kernel_that_binds_variables() -> None:
    assert estimate_tir_flops(normalized(kernel(let=True))) == 8
    assert "estimated_flops" not in normalized(kernel())["main"].attrs
