"""The session: onnxruntime's calls over compiled programs: one of any size where a model leaves shapes free, and more.

session.py      InferenceSession: what users call
models.py       what a session runs: a model of one program, or one with free dimensions
node_args.py    inputs, outputs and the model as onnxruntime describes them
feed.py         what a caller passes in -> arrays that fit, and their shapes
programs.py     which program runs these shapes, and which are compiled when
bounds.py       which shapes a program of any size takes
compiling.py    a program for shapes, or of any size, in this process or in one of its own (child.py)
stand_in.py     onnxruntime, for shapes that no program is there for
ort_values.py   onnxruntime's values <-> arrays
binding.py      io_binding
report.py       what was called and compiled
"""

from .node_args import NodeArg
from .session import InferenceSession

__all__ = ["InferenceSession", "NodeArg"]
