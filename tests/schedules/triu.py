"""A recipe as short as one may be: the upper triangle of matrices."""

from tvm import tirx

from tvm_ext.core.recipe import Match, Miss, Recipe
from tvm_ext.schedules.steps.arguments import Arguments
from tvm_ext.schedules.steps.loops import flat_map
from tvm_ext.schedules.steps.storage import float32_operand


class Triu(Recipe):
    """triu(x, k): below diagonal k stands zero. What is fused behind it comes by the epilogue."""

    name, anchors = "triu", frozenset({"relax.triu"})

    def match(self, group, machine):
        data = float32_operand(group, 0)
        return data if isinstance(data, Miss) else Match(group)

    def compute(self, match, config, layouts):
        args, (data, k) = Arguments(match.group, layouts), match.group.call.args
        x, zero = args.reader(match.group.param(data)), tirx.const(0, "float32")
        return args.kernel(lambda *i: tirx.if_then_else(i[-1] - i[-2] >= int(k.value), x(*i), zero))

    def schedule(self, sch, match, config, machine):
        flat_map(sch, sch.get_sblock("out"), config["threads"], machine.lanes)
