"""MQTT+: what the broker computes for subscribers, as plans, rules, windows and aggregates.

`parse` makes a `Plan` of a subscription's text, `compute` a `Computation` of the plan. Everything here is pure: time is
an argument, and who subscribed is somebody else's concern.
"""

from moq.broker.operators.capabilities import capabilities
from moq.broker.operators.computation import Computation, Output, Settings, compute
from moq.broker.operators.functions import Functions, NoFunctions
from moq.broker.operators.grammar import KEYWORDS, OperatorError, parse
from moq.broker.operators.plan import Comparison, Naming, Operation, Plan, Rule, Spatial, Temporal
from moq.broker.operators.rules import RuleFilter
from moq.broker.operators.windows import Calendar, WindowRecord

__all__ = [
    "KEYWORDS",
    "Calendar",
    "Comparison",
    "Computation",
    "Functions",
    "Naming",
    "NoFunctions",
    "Operation",
    "OperatorError",
    "Output",
    "Plan",
    "Rule",
    "RuleFilter",
    "Settings",
    "Spatial",
    "Temporal",
    "WindowRecord",
    "capabilities",
    "compute",
    "parse",
]
