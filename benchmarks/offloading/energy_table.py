"""Energies of memories and arithmetic by hwcomponents, as the library has them in
`byoc/systolic/energy_figures.py`:

    python3.12 -m venv energy && energy/bin/pip install hwcomponents-cacti==1.0.40 \\
        hwcomponents-library==1.0.58 hwcomponents-neurosim==1.0.43
    energy/bin/python benchmarks/offloading/energy_table.py > byoc/systolic/energy_figures.py
    energy/bin/python benchmarks/offloading/energy_table.py --between \\
        > tests/byoc/systolic/data/hwcomponents_sram.csv

hwcomponents-library imports hwcomponents-neurosim without saying so. CACTI in the wheel needs glibc
2.38; elsewhere `make opt` in its folder, which has the sources, builds another.
"""

import importlib
import json
import random
import sys

NODES, SIZES = (65, 45, 32, 22), [1 << log for log in range(10, 23)]
PORTS = [1 << log for log in range(2, 10)]
#: Nodes between which the library scales arithmetic linearly.
SCALED = (65, 45, 32, 20, 16, 14, 10, 7)
DRAMS = ("LPDDR4", "LPDDR", "DDR3", "HBM2", "HBM3", "HBM4")
_HEAD = '''"""Picojoules by hwcomponents, as `benchmarks/offloading/energy_table.py` writes them."""

#: Nanometers -> of SRAM a byte, mean of read and write, by hwcomponents-cacti 1.0.40 (CACTI): a row
#: a size of 1 KiB to 4 MiB, a column a port of 4 to 512 bytes, both in powers of two.
SRAM = {{
{sram}
}}  # fmt: skip
#: A byte of DRAM, by hwcomponents-cacti.
DRAM = {dram}
#: Nanometers -> energy of logic over that at 45 nm, by hwcomponents 1.0.114 (Stillmaker, 2017).
LOGIC = {logic}
#: An int8 multiplier and an adder of 32 bits at 45 nm, by hwcomponents-library 1.0.58 (Aladdin).
MAC_INT8 = {mac}'''


def sram(node: float, size: int, port: int) -> float:
    """Picojoules a byte, mean of read and write, of a memory of so many bytes with a port of so
    many."""
    memory = importlib.import_module("hwcomponents_cacti").SRAM(
        tech_node=node * 1e-9, width=8 * port, size=8 * size
    )
    return float((memory.read().energy + memory.write().energy) / 2 / port * 1e12)


def module() -> str:
    """Text of the module."""
    lines = []
    for node in NODES:
        lines.append(f"    {node}: (")
        for size in SIZES:
            figures = ", ".join(f"{sram(node, size, port):.4g}" for port in PORTS)
            lines.append(f"        ({figures}),")
        lines.append("    ),")
    cacti, scaling, library = map(
        importlib.import_module,
        ("hwcomponents_cacti", "hwcomponents.scaling", "hwcomponents_library.library.aladdin"),
    )
    drams = {name: getattr(cacti, name)() for name in DRAMS}
    dram = {name: round(8e12 * ram.read().energy / ram.width, 4) for name, ram in drams.items()}
    logic = {node: round(scaling.tech_node_energy(node * 1e-9, 45e-9), 6) for node in SCALED}
    mac = library.AladdinIntMAC(45e-9, adder_width=32, multiplier_width=8).mac().energy
    return _HEAD.format(
        sram="\n".join(lines), dram=json.dumps(dram), logic=logic, mac=round(1e12 * mac, 4)
    )


def between() -> str:
    """Memories that the table has to interpolate, as CSV."""
    rng = random.Random(0)
    rows = ["node,size,port,picojoules"]
    for _ in range(24):
        node, size = rng.choice((65, 50, 45, 28, 22, 14)), rng.randrange(1 << 12, 1 << 21, 256)
        port = rng.randrange(4, 257, 4)
        rows.append(f"{node},{size},{port},{sram(node, size, port):.5g}")
    return "\n".join(rows)


if __name__ == "__main__":
    print(between() if "--between" in sys.argv else module())
