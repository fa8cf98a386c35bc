"""The accelerator as hardware, in Amaranth; :mod:`..rtl` writes, counts and runs it. Needs the extra `rtl`."""
