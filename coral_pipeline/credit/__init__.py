"""Credit: rewards, values, advantages and tokens of a finished tree (method C1–C7).

The interface for recipes of one's own::

    from coral_pipeline.credit import Estimator, prepare

    class RewardOnly(Estimator):
        def advantages(self, edges, values):
            return [edge.reward for edge in edges]

    batch = prepare(Path("…/tree"), estimator=RewardOnly())
"""

from coral_pipeline.credit.batch import Batch
from coral_pipeline.credit.checkpoints import Checkpoint
from coral_pipeline.credit.direct_branch_td import DirectBranchTd
from coral_pipeline.credit.estimator import Advantage, Edge, Estimator, Node
from coral_pipeline.credit.grpo import Grpo
from coral_pipeline.credit.http_critic import HttpCritic
from coral_pipeline.credit.named import estimator_named, value_model_named
from coral_pipeline.credit.preparation import prepare
from coral_pipeline.credit.value_models import Constant, ValueModel
from coral_pipeline.credit.values import MissingValue, NodeValues, TreeValues
from coral_pipeline.settings import CreditSettings, RewardConfig

__all__ = [
    "Advantage",
    "Batch",
    "Checkpoint",
    "Constant",
    "CreditSettings",
    "DirectBranchTd",
    "Edge",
    "Estimator",
    "Grpo",
    "HttpCritic",
    "MissingValue",
    "Node",
    "NodeValues",
    "RewardConfig",
    "TreeValues",
    "ValueModel",
    "estimator_named",
    "prepare",
    "value_model_named",
]
