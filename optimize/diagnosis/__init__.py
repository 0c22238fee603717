"""What one plan costs and why: terms, limits, sensitivity, validation, comparison, prediction."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.diagnosis.compare import Difference as Difference
    from optimize.diagnosis.compare import comparison_of as comparison_of
    from optimize.diagnosis.compare import differences_json as differences_json
    from optimize.diagnosis.compare import memories as memories
    from optimize.diagnosis.compare import times as times
    from optimize.diagnosis.explain import Explanation as Explanation
    from optimize.diagnosis.explain import StagePeak as StagePeak
    from optimize.diagnosis.explain import explain as explain
    from optimize.diagnosis.explain import explain_inputs as explain_inputs
    from optimize.diagnosis.explain import explanation_json as explanation_json
    from optimize.diagnosis.explain import limiting as limiting
    from optimize.diagnosis.explain import step_interval_s as step_interval_s
    from optimize.diagnosis.inputs import Inputs as Inputs
    from optimize.diagnosis.money import missing as missing
    from optimize.diagnosis.operators import RoofedOperator as RoofedOperator
    from optimize.diagnosis.predict import Prediction as Prediction
    from optimize.diagnosis.predict import Predictions as Predictions
    from optimize.diagnosis.predict import errors_of as errors_of
    from optimize.diagnosis.predict import predict as predict
    from optimize.diagnosis.predict import prediction_json as prediction_json
    from optimize.diagnosis.predict import prediction_table as prediction_table
    from optimize.diagnosis.predict import worst_first as worst_first
    from optimize.diagnosis.rows import ExplainedRow as ExplainedRow
    from optimize.diagnosis.rows import explain_row as explain_row
    from optimize.diagnosis.rows import explained_row_json as explained_row_json
    from optimize.diagnosis.sensitivity import Elasticity as Elasticity
    from optimize.diagnosis.sensitivity import Leaf as Leaf
    from optimize.diagnosis.sensitivity import by_resource as by_resource
    from optimize.diagnosis.sensitivity import constant_words as constant_words
    from optimize.diagnosis.sensitivity import elasticities as elasticities
    from optimize.diagnosis.sensitivity import largest as largest
    from optimize.diagnosis.sensitivity import parameters as parameters
    from optimize.diagnosis.sensitivity import read_leaf as read_leaf
    from optimize.diagnosis.sensitivity import with_leaves as with_leaves
    from optimize.diagnosis.time_to_target import time_to_target as time_to_target
    from optimize.diagnosis.time_to_target import tokens_to as tokens_to
    from optimize.diagnosis.timeline import Span as Span
    from optimize.diagnosis.timeline import Timeline as Timeline
    from optimize.diagnosis.timeline import chrome_trace as chrome_trace
    from optimize.diagnosis.timeline import timeline as timeline
    from optimize.diagnosis.validate import Validation as Validation
    from optimize.diagnosis.validate import validate as validate

door.hang(__name__)
