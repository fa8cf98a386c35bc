"""MetaSchedule's XGBoost cost model, bounded, and trained with the records of earlier sessions."""

from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import PackSum, XGBConfig
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult

#: Trees of the model.
_ROUNDS = 40
#: Trials after which it is asked; before, candidates are drawn at random.
_WARM_UP = 32
#: Records of a kernel that the model is trained with at the start: each is replayed, which takes milliseconds.
_MOST_REPLAYED = 128


@derived_object
class BoundedModel(XGBModel._cls):
    """TVM's model, with a fixed number of trees. TVM trains until the error on the training set itself grows no
    smaller for 50 rounds, hundreds of rounds in all, and computes two metrics in Python after each. One thread is
    enough: XGBoost's threads spin, and where a core is busy the same training takes ten times as long on two.

    Args:
        seed: of the trees.
    """

    def __init__(self, seed: int) -> None:
        config = XGBConfig(max_depth=6, eta=0.2, seed=seed, nthread=1, tree_method="hist")
        super().__init__(config=config, num_warmup_samples=_WARM_UP, adaptive_training=True)

    def _train(self, xs: list[np.ndarray], ys: np.ndarray) -> None:
        import xgboost

        data = PackSum(xs=xs, ys=ys)
        self.booster = xgboost.train(
            self.config.to_dict(), data.dmatrix, num_boost_round=_ROUNDS,
            obj=lambda predicted, _: data.obj_square_error(predicted),
        )  # fmt: skip


def train_with(model: Any, context: TuneContext, records: list[TuningRecord]) -> None:
    """Show the model records of a kernel that were made before, evenly spread from the best to the worst."""
    step = max(1, -(-len(records) // _MOST_REPLAYED))
    some = records[::step]
    if some:
        candidates = [record.as_measure_candidate() for record in some]
        model.update(context, candidates, [RunnerResult(record.run_secs, None) for record in some])
