"""`tvm-ext rtl`: the systolic array as hardware: its Verilog, or the cells that it takes."""

import argparse
from dataclasses import asdict, astuple

from ...core.errors import OptionError
from ...core.settings.flags import join_named
from ...runtime.files import write_text
from ..shared.common import print_result, setting_argument, table_text

EXAMPLE = """\
  tvm-ext rtl --rows 4 --cols 4 --dataflow ws -o array.v
  tvm-ext rtl --rows 4 --cols 4 --dataflow os --cells
  tvm-ext rtl --part core --setting scratchpad_bytes=4096 --setting vector_lanes=4 -o chip.v"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--rows", type=int, default=4, metavar="N", help="rows of processing elements (default: 4)")
    parser.add_argument("--cols", type=int, default=4, metavar="N", help="columns of them (default: 4)")
    parser.add_argument("--dataflow", default="ws", help="ws, os or is (default: ws)")
    parser.add_argument(
        "--part", default="array", help="element: a PE; array: PEs, skew, sequencer (default); core: the whole chip"
    )
    parser.add_argument(
        "--setting", action="append", default=[], metavar="KEY=VALUE", help="another setting of the accelerator"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the Verilog (default: stdout)")
    parser.add_argument("--cells", action="store_true", help="gates and flip-flops of the array instead, by yosys")


def run(args: argparse.Namespace) -> int:
    """Write the Verilog, or print the cells."""
    from ...byoc.systolic import Accelerator, cells, verilog

    more = join_named("--setting", (setting_argument("--setting", text) for text in args.setting))
    hardware = Accelerator.from_dict({"rows": args.rows, "cols": args.cols, **more})
    if args.cells:
        if args.output or args.part != "array":
            raise OptionError(
                "--cells counts those of the array: it takes no -o and no other --part", fix="--json > FILE"
            )
        parts = cells(hardware, args.dataflow)
        table = [(name, *astuple(each)) for name, each in parts.items()]
        plain = {"ok": True, "cells": {name: asdict(each) for name, each in parts.items()}}
        return print_result(args, plain, table_text(("part", "gates", "flip-flops", "transistors"), table))
    text = verilog(hardware, args.dataflow, args.part)
    values = {"ok": True, "part": args.part, "output": args.output, "lines": text.count("\n")}
    if not args.output:
        return print_result(args, {**values, "verilog": text}, text)
    write_text(args.output, text)
    return print_result(args, values, f"wrote {args.output}: {values['lines']} lines")
