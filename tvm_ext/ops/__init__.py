"""What is known of each operator: one row an operator, which every room asks."""

from .operator import Kind as Kind
from .operator import Operator as Operator
from .table import of as of
from .table import operators as operators
from .table import register as register
from .table import registered as registered
