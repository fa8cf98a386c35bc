"""The command line: `tvm-ext VERB ...`; one file a verb, which parses and prints."""

from .app import main as main
