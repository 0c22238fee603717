"""What a step costs: counts, times, schedule, memory, money. No file access, no array library, no branch on a value."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.formulas import collectives as collectives
    from costmodel.formulas.breakdown import MFU_CONVENTION as MFU_CONVENTION
    from costmodel.formulas.breakdown import Breakdown as Breakdown
    from costmodel.formulas.breakdown import Term as Term
    from costmodel.formulas.breakdown import breakdown as breakdown
    from costmodel.formulas.busy import busy as busy
    from costmodel.formulas.busy import operators_s as operators_s
    from costmodel.formulas.busy import timed as timed
    from costmodel.formulas.collectives import COLLECTIVES as COLLECTIVES
    from costmodel.formulas.collectives import Law as Law
    from costmodel.formulas.cost import Cost as Cost
    from costmodel.formulas.cost import Parts as Parts
    from costmodel.formulas.cost import around as around
    from costmodel.formulas.cost import cost as cost
    from costmodel.formulas.cost import finished as finished
    from costmodel.formulas.cost import parts as parts
    from costmodel.formulas.cost import step as step
    from costmodel.formulas.cost import work as work
    from costmodel.formulas.counts import AttentionCount as AttentionCount
    from costmodel.formulas.counts import BlockCounts as BlockCounts
    from costmodel.formulas.counts import MatmulCount as MatmulCount
    from costmodel.formulas.counts import MemoryCount as MemoryCount
    from costmodel.formulas.counts import OpCounts as OpCounts
    from costmodel.formulas.counts import SavedBytes as SavedBytes
    from costmodel.formulas.counts import counts as counts
    from costmodel.formulas.counts import payload_copies as payload_copies
    from costmodel.formulas.counts import saved_bytes as saved_bytes
    from costmodel.formulas.counts import split_shares as split_shares
    from costmodel.formulas.curves import CurveRange as CurveRange
    from costmodel.formulas.curves import Curves as Curves
    from costmodel.formulas.curves import Hardware as Hardware
    from costmodel.formulas.curves import PowerLaw as PowerLaw
    from costmodel.formulas.curves import capital_usd as capital_usd
    from costmodel.formulas.curves import chip_usd as chip_usd
    from costmodel.formulas.curves import chip_w as chip_w
    from costmodel.formulas.curves import hardware_of as hardware_of
    from costmodel.formulas.curves import meter_w as meter_w
    from costmodel.formulas.curves import with_hardware as with_hardware
    from costmodel.formulas.economics import Bill as Bill
    from costmodel.formulas.economics import Busy as Busy
    from costmodel.formulas.economics import Draw as Draw
    from costmodel.formulas.economics import Economics as Economics
    from costmodel.formulas.economics import EconomicsRange as EconomicsRange
    from costmodel.formulas.economics import bill as bill
    from costmodel.formulas.economics import draw as draw
    from costmodel.formulas.economics import drawn_s as drawn_s
    from costmodel.formulas.economics import economics as economics
    from costmodel.formulas.economics import economics_range as economics_range
    from costmodel.formulas.goodput import STATE_BYTES as STATE_BYTES
    from costmodel.formulas.goodput import checkpoint_s as checkpoint_s
    from costmodel.formulas.goodput import elapsed as elapsed
    from costmodel.formulas.goodput import failures_per_s as failures_per_s
    from costmodel.formulas.goodput import interval_s as interval_s
    from costmodel.formulas.goodput import lost_share as lost_share
    from costmodel.formulas.goodput import slow_share as slow_share
    from costmodel.formulas.goodput import spare_share as spare_share
    from costmodel.formulas.memory import StageKind as StageKind
    from costmodel.formulas.memory import StageMemory as StageMemory
    from costmodel.formulas.memory import allocated_bytes as allocated_bytes
    from costmodel.formulas.memory import dropped_bytes as dropped_bytes
    from costmodel.formulas.memory import gathered_bytes as gathered_bytes
    from costmodel.formulas.memory import in_flight as in_flight
    from costmodel.formulas.memory import limit_bytes as limit_bytes
    from costmodel.formulas.memory import memory as memory
    from costmodel.formulas.memory import peak as peak
    from costmodel.formulas.memory import reserved_bytes as reserved_bytes
    from costmodel.formulas.memory import stage_memory as stage_memory
    from costmodel.formulas.optimizer import accelerator_update_s as accelerator_update_s
    from costmodel.formulas.optimizer import optimizer_s as optimizer_s
    from costmodel.formulas.pipeline import Hops as Hops
    from costmodel.formulas.pipeline import Pipeline as Pipeline
    from costmodel.formulas.pipeline import Stage as Stage
    from costmodel.formulas.pipeline import pipeline_s as pipeline_s
    from costmodel.formulas.pipeline import streamed_s as streamed_s
    from costmodel.formulas.placement import domain_sizes as domain_sizes
    from costmodel.formulas.placement import nests as nests
    from costmodel.formulas.placement import ranks_by_tier as ranks_by_tier
    from costmodel.formulas.roofline import Rates as Rates
    from costmodel.formulas.roofline import attention_s as attention_s
    from costmodel.formulas.roofline import matmul_s as matmul_s
    from costmodel.formulas.roofline import memory_s as memory_s
    from costmodel.formulas.roofline import rates as rates
    from costmodel.formulas.timing import BlockPasses as BlockPasses
    from costmodel.formulas.timing import OpTimes as OpTimes
    from costmodel.formulas.timing import hops as hops
    from costmodel.formulas.timing import stages as stages
    from costmodel.formulas.timing import timing as timing
    from costmodel.formulas.traffic import gradient_traffic_s as gradient_traffic_s
    from costmodel.formulas.traffic import links_by_tier_s as links_by_tier_s

door.hang(__name__)
