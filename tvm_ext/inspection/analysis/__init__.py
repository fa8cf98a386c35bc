"""What a model holds and what would become of it, without compiling a kernel."""

from .analyze import analyze as analyze
from .result import Analysis as Analysis
