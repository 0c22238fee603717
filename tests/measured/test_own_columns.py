"""Tables as people have them: other names of columns, units, separators, and JSON; each read as what it means."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from costmodel.inputs import layers
from costmodel.measured.rows import Case, read_cases, timed_by_rate
from costmodel.measured.rows.headers import COLUMN_WORDS, measured
from costmodel.specs import SpecError

HEADER = "hardware,gpus,model,seq,global_batch_sequences,micro_batch,tp,pp,measured_step_s"
ROW = "H100-80GB-SXM,64,Llama-2-7B,4096,256,1,2,2,3.5"
TABLE = f"{HEADER}\n{ROW}\n"
READ = (64, 256, 4096, 1, 2, 2, 3.5)


def read(tmp_path, content, expected_rows=1) -> Sequence[Any]:
    path = tmp_path / "rows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_cases(path)
    assert len(found) == expected_rows, found
    return found


def figures(row):
    assert isinstance(row, Case), row
    work, plan = row.workload, row.plan
    sizes = (int(row.cluster.accelerators), int(work.batch), int(work.sequence))
    step_s = row.measured_step_s and float(f"{row.measured_step_s:.4g}")
    return (*sizes, plan.microbatch, plan.tensor, plan.pipeline, step_s)


SPELT = {
    "marked": b"\xef\xbb\xbf" + TABLE.encode(),
    "lines of Windows": TABLE.replace("\n", "\r\n"),
    "semicolons": TABLE.replace(",", ";"),
    "decimal commas": TABLE.replace(",", ";").replace("3.5", "3,5"),
    "points of thousands": TABLE.replace(",", ";").replace("3.5", "3,5").replace("4096", "4.096"),
    "decimal commas of three digits": TABLE.replace(",", ";").replace("3.5", "3,500"),
    "pairs and thousands with commas beside points": "\t".join(f"{HEADER},mesh,loss\n".split(","))
    + "\t".join(f"{ROW},mesh,2.1\n".split(",")).replace("mesh", "8,4").replace("4096", "4,096").replace("3.5", "3.500"),
    "tabs": TABLE.replace(",", "\t"),
    "bars": TABLE.replace(",", "|"),
    "Excel": "sep=;\r\n" + TABLE.replace(",", ";"),
    "Unicode text of Excel": TABLE.replace(",", "\t").encode("utf-16"),
    "Markdown": f"| {HEADER.replace(',', ' | ')} |\n|{'---|' * 9}\n| {ROW.replace(',', ' | ')} |\n",
    "empty lines": f"\n\n{HEADER}\n\n{ROW}\n,,,,,,,,\n\n",
    "remarks": f"# measured by me\n{TABLE}",
    "quotes": f'"{HEADER}"\n"{ROW}"\n'.replace(",", '","'),
    "blanks": TABLE.replace(",", ", "),
    "trailing commas": f"{HEADER},,\n{ROW},,\n",
    "thousands": TABLE.replace("4096", '"4,096"'),
    "an index": f",{HEADER}\n0,{ROW}\n",
    "capitals": f"{HEADER.upper()}\n{ROW}\n",
    "JSON": json.dumps([dict(zip(HEADER.split(","), ROW.split(","), strict=True))]),
    "JSON with a list": json.dumps({"date": "x", "runs": [dict(zip(HEADER.split(","), ROW.split(","), strict=True))]}),
    "JSON of columns": json.dumps({name: [cell] for name, cell in zip(HEADER.split(","), ROW.split(","), strict=True)}),
    "JSON of pandas": json.dumps({n: {"0": cell} for n, cell in zip(HEADER.split(","), ROW.split(","), strict=True)}),
    "JSON in sections": json.dumps(
        {"run": {"host": dict(zip(HEADER.split(",")[:2], ROW.split(",")[:2], strict=True))}}
        | dict(zip(HEADER.split(",")[2:], ROW.split(",")[2:], strict=True))
    ),
    "columns that blanks align": TABLE.replace(",", "   "),
    "blanks alone": TABLE.replace(",", " "),
    "JSON lines": json.dumps(dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {"sp": True, "cp": None}),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELT)
def test_tables_in_other_spellings(tmp_path, spelling):
    assert figures(read(tmp_path, SPELT[spelling])[0]) == READ


NAMED = (
    "gpu,num_gpus,model_name,seq_len,global_batch_size,micro_batch_size,tensor_parallel,pipeline_parallel,step_time",
    "GPU Type,# GPUs,Model,Sequence Length,GBS,MBS,TP,PP,Step time (s)",
    "accelerator,world_size,model,seq-length,global-batch-size,micro-batch-size,tensor-model-parallel-size,"
    "pipeline-model-parallel-size,iteration_time_s",
    "GPU Type,GPU,model,context length,gbs,mbs,tp_size,pp_size,sec/step",
    "gpuType,numGpus,modelName,seqLen,globalBatchSize,microBatchSize,tensorParallel,pipelineParallel,stepTimeSec",
    "GPUType,NumGPUs,Model,SeqLen,global batch (sequences),Micro BS,tensor_par,pipeline_par,iter_time",
    "hw.name,hw.gpus,model.name,model.seq_length,train.global_batch_size,train.micro_batch_size,parallel.tp,parallel.pp,"
    "train/step_time",
    "Hardware,#-GPUs,Model,Seq Len,Global Batch Sequences,Microbatch,TP size,PP degree,time per iteration (s)",
)


@pytest.mark.parametrize("header", NAMED)
def test_columns_by_other_names(tmp_path, header):
    found = read(tmp_path, f"{header}\n{ROW}\n")[0]
    assert figures(found) == READ
    assert "columns " in found.assumed[-1]
    assert " as gpus" in found.assumed[-1]


@pytest.mark.parametrize(
    ("column", "cell"),
    [("step time (ms)", "3500"), ("elapsed_time_per_iteration_ms", "3500.0"), ("measured_step_s", "3500 ms")]
    + [("measured_step_s", "3.5 s"), ("step time", "0.0583333 min"), ("step time (ms)", "3500 ms")]
    + [("tokens/s/GPU", "4681.143")]
    + [("tokens/s", '"299,593"'), ("Throughput (tokens/sec)", "299593"), ("tok/s/gpu", "4681.14")]
    + [("TPS/GPU", "4681.1")]
    + [("samples/s", "73.142857"), ("samples/sec/GPU", "1.1428571"), ("Throughput (S/s)", "73.142857")]
    + [("steps/sec", "0.285714"), ("k tokens/s", "299.593"), ("tokens/s", "299.6k")]
    + [("step_time_mean", "3.5 \u00b1 0.1"), ("step time (ms)", "3500 \u00b1 100"), ("step time (ms)", "3500 (avg)")]
    + [("measured_step_s", "3500 \u00b1 100 ms"), ("step time (s)", "3.5 s"), ("step time (s)", "3500ms")]
    + [("tokens/day", "25884847543"), ("Tokens / sec / GPU", "4681.143")],
)  # fmt: skip
def test_results_in_their_units(tmp_path, column, cell):
    found = read(tmp_path, f"{HEADER.replace('measured_step_s', column)}\n{ROW.replace('3.5', cell)}\n")
    assert figures(found[0])[:6] == READ[:6]
    assert found[0].measured_step_s == pytest.approx(3.5, rel=1e-3)


@pytest.mark.parametrize(("software", "tokens_per_s"), [("TorchTitan", 4681.143), ("Megatron-LM", 299593)])
def test_tokens_that_torchtitan_logs_are_of_a_device(tmp_path, software, tokens_per_s):
    header = f"{HEADER.replace('measured_step_s', 'tps')},framework"
    found = read(tmp_path, f"{header}\n{ROW.replace('3.5', f'{tokens_per_s}')},{software}\n")[0]
    assert found.measured_step_s == pytest.approx(3.5, rel=1e-3)


@pytest.mark.parametrize(
    ("column", "cell", "expected_gb"),
    [("measured_mem_GB", "40", 40), ("measured_mem_GB", "40 GiB", 42.95), ("Peak memory (GiB)", "40", 42.95)]
    + [("max_mem_GB", "40", 40), ("memory (MiB)", "40960", 42.95), ("Mem Alloc (GB)", "60", 60)]
    + [("Memory (GB)", "40 GB", 40), ("Memory (GB)", "40GiB", 42.95), ("memory", "40 / 80 GiB", 42.95)]
    + [("Memory (GiB)", "40/80", 42.95)],
)  # fmt: skip
def test_memory_in_its_units(tmp_path, column, cell, expected_gb):
    found = read(tmp_path, f"{HEADER},{column}\n{ROW},{cell}\n")[0]
    assert found.measured_mem_bytes == pytest.approx(1e9 * expected_gb, rel=1e-3)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("max memory allocated (GiB)", "allocated_memory"), ("Peak allocated memory (GiB)", "allocated_memory"),
        ("max_memory_reserved (GiB)", None), ("max reserved memory (GiB)", None), ("Memory (GiB)", None),
        ("nvidia-smi memory (GiB)", "device_memory"), ("max active memory (GiB)", "allocated_memory"),
        ("GPU memory used (GiB)", None),
    ],
)  # fmt: skip
def test_the_name_of_a_column_of_memory_says_of_what(tmp_path, column, told):
    found = read(tmp_path, f"{HEADER},{column}\n{ROW},40\n")[0]
    assert found.measured_mem_bytes == pytest.approx(40 * 2**30)
    assert {name for name, is_so in found.facts.items() if "memory" in name and is_so} == ({told} if told else set())


BATCHES = {
    "global batch (tokens)": "1048576",
    "tokens per batch": "1M",
    "Global batch (M tokens)": "1",
    "GlobalBatchSize (T)": "1048576",
    "train_batch_size": "256",
    "batch size": "256",
    "gradient_accumulation_steps": "16",
}


@pytest.mark.parametrize("column", BATCHES)
def test_batches_of_sequences_tokens_and_accumulated_ones(tmp_path, column):
    changed = f"{HEADER.replace('global_batch_sequences', column)}\n{ROW.replace('256', BATCHES[column])}\n"
    assert figures(read(tmp_path, changed)[0])[:6] == READ[:6]


@pytest.mark.parametrize(
    ("column", "cell"),
    [("parallelism", "TP2 PP2 DP16"), ("Parallel config", '"tp=2, pp=2"'), ("TP/PP/DP", "2/2/16")]
    + [("TP*PP*DP", "2*2*16"), ("Parallelism (TP/PP/DP)", "2/2/16")]
    + [('"(TP, PP)"', '"(2, 2)"'), ("DP x TP x PP", "16 x 2 x 2"), ("Strategy", '"TP=2, PP=2, ZeRO-1"')],
)  # fmt: skip
def test_degrees_in_one_column(tmp_path, column, cell):
    changed = f"{HEADER.replace('tp,pp', column)}\n{ROW.replace('2,2,', f'{cell},')}\n"
    assert figures(read(tmp_path, changed)[0]) == READ


def test_nodes_dimensions_and_flags_of_software(tmp_path):
    header = "gpu,nnodes,gpus per node,num_hidden_layers,hidden_size,num_attention_heads,num_key_value_heads"
    header += ",intermediate_size,vocab_size,seq,gbs,mbs,tp,pp,tokens/s/gpu,zero_stage,gradient_checkpointing,framework"
    row = "A100-80GB,8,8,32,4096,32,8,14336,128256,4096,256,1,2,2,4681.14,1,True,Megatron-LM"
    found = read(tmp_path, f"{header}\n{row}\n")[0]
    assert figures(found) == READ
    assert (layers(found.workload), found.plan.zero_stage, found.plan.recompute, found.stack) == (
        *(32, 1, "full"),
        "megatron-2022",
    )


def test_a_batch_of_a_rank_that_is_accumulated_is_a_microbatch(tmp_path):
    header = HEADER.replace("global_batch_sequences,micro_batch", "bs/gpu,grad acc")
    assert figures(read(tmp_path, f"{header}\n{ROW.replace('256,1', '2,8')}\n")[0])[:4] == (64, 256, 4096, 2)


def test_a_family_and_its_size_in_two_columns(tmp_path):
    found = read(tmp_path, f"{HEADER},params\n{ROW.replace('Llama-2-7B', 'llama3')},70B\n")[0]
    assert layers(found.workload) == 80


def test_flags_of_software_in_columns_of_their_own(tmp_path):
    flags = (
        "use_distributed_optimizer,sequence_parallel,num_layers_per_virtual_pipeline_stage,flash_attn,GPU memory (GB)"
    )
    found = read(tmp_path, f"step,{HEADER},{flags}\n100,{ROW},False,True,4,False,64\n")[0]
    plan = found.plan
    assert (plan.zero_stage, plan.sequence_parallel, plan.virtual_stages, plan.attention) == (0, True, 4, "unfused")
    assert found.measured_step_s == 3.5
    assert found.cluster.accelerator.hbm_bytes == pytest.approx(64 * 2.0**30, rel=0.01)


def test_devices_beside_nodes_are_those_of_one(tmp_path):
    header = HEADER.replace("gpus", "trainer.num_nodes,trainer.devices").replace("hardware", "system,accelerator")
    row = ROW.replace("H100-80GB-SXM,64", "DGX,H100-80GB-SXM,8,8")
    assert figures(read(tmp_path, f"{header}\n{row}\n")[0]) == READ


@pytest.mark.parametrize("names", ["Nodes,GPUs", "num_nodes,total_gpus", "nnodes,# GPUs"])
@pytest.mark.parametrize(("nodes", "devices", "accelerators"), [(1, 8, 8), (2, 16, 16), (8, 64, 64), (32, 8, 256)])
def test_nodes_and_devices_in_either_order(tmp_path, names, nodes, devices, accelerators):
    if "total" in names:
        nodes, devices = accelerators // 8, accelerators
    first, second = names.split(",")
    for header, cells in ((names, f"{nodes},{devices}"), (f"{second},{first}", f"{devices},{nodes}")):
        found = read(tmp_path, f"{HEADER.replace('gpus', header)}\n{ROW.replace('64', cells)}\n")[0]
        assert found.cluster.accelerators == accelerators, (header, cells)
        assert found.cluster.tiers[0].size == 8


def test_a_world_of_eight_on_two_nodes_is_of_eight(tmp_path):
    found = read(tmp_path, f"{HEADER.replace('gpus', 'nodes,world_size')}\n{ROW.replace('64', '2,8')}\n")[0]
    assert found.cluster.accelerators == 8


def test_a_fraction_of_memory_is_measured(tmp_path):
    found = read(tmp_path, f"{HEADER},GPU memory (GiB)\n{ROW},45.5\n")[0]
    assert found.measured_mem_bytes == pytest.approx(45.5 * 2**30)
    assert found.cluster.accelerator.hbm_bytes > 80e9
    assert "fractions as measured_mem_GB" in found.assumed[-1]


@pytest.mark.parametrize(
    ("column", "cell"),
    [("h", "1.5"), ("v", "0.4"), ("l", "2.1"), ("s", "3.2"), ("interleave", "True"), ("hbm", "3.35")],
)
def test_columns_of_something_else_change_nothing(tmp_path, column, cell):
    found = read(tmp_path, f"{HEADER},{column}\n{ROW},{cell}\n")[0]
    assert figures(found) == READ
    assert found.measured_mem_bytes is None


@pytest.mark.parametrize(("letter", "batch"), [("b", "1"), ("B", "256"), ("b", "256")])
def test_a_small_b_is_a_batch_of_a_step_or_of_a_rank(tmp_path, letter, batch):
    header = HEADER.replace("global_batch_sequences", letter)
    found = read(tmp_path, f"{header}\n{ROW.replace('256', batch)}\n")[0]
    assert found.workload.batch == (256 if batch == "256" else 16)


def test_parameters_in_millions_with_their_own_letter(tmp_path):
    header, row = HEADER.replace("model", "model,params (M)"), ROW.replace("Llama-2-7B", "GPT,{}")
    sizes = [read(tmp_path, f"{header}\n{row.format(size)}\n")[0].workload for size in ("6700", "6700M", "6.7B")]
    assert sizes[0] == sizes[1] == sizes[2]


def test_nodes_of_nobody_knows_how_many_are_refused_in_words(tmp_path):
    found = read(tmp_path, f"{HEADER.replace('gpus', 'nodes')}\n{ROW}\n")[0]
    assert found.reason.startswith("`gpus` is '64 nodes' and `gpus_per_node` empty")


def test_what_another_column_says_too_is_told(tmp_path):
    found = read(tmp_path, f"{HEADER},seq_len\n{ROW},2048\n")[0]
    assert found.workload.sequence == 4096
    assert "seq_len not read" in found.assumed[-1]


def test_known_columns_are_what_they_were(tmp_path):
    assert not any("columns" in each for each in read(tmp_path, TABLE)[0].assumed)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"PK\x03\x04\x14\x00", "a workbook of Excel"), (b"", "at least hardware, gpus"), ("<html>", "at least hardware")]
    + [(ROW, "at least hardware, gpus"), ("num_gpus,model\n8,x\n", "at least hardware, gpus")],
)  # fmt: skip
def test_what_is_no_table_is_refused_in_one_line(tmp_path, content, said):
    with pytest.raises(SpecError, match=said) as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


def test_a_line_that_is_no_object_costs_itself_alone(tmp_path):
    good = json.dumps({"hardware": "H100", "gpus": 8, "model": "Llama-2-7B"})
    found = read(tmp_path, f"{good}\n{{broken\n{good}\n", 3)
    assert [isinstance(row, Case) for row in found] == [True, False, True]


@pytest.mark.parametrize("cell", ["", "x", "1e999", "nan", "-3", "3 parsecs", "0"])
def test_what_is_no_measure_is_none(cell):
    assert not any(measured(name, cell) not in (None, 0.0, math.inf) for name in COLUMN_WORDS)


@pytest.mark.parametrize(
    ("header", "cells", "step_s"),
    [("total steps,training time (h)", "1000,2.5", 9.0), ("steps,elapsed", "1000,02:30:00", 9.0)]
    + [("training tokens (B),wall time (days)", "1000,100", 100 * 86400 * 2**20 / 1e12)]
    + [("tokens,step time (s)", "4000000,3.5", 3.5), ("samples,step time (s)", "256,3.5", 3.5)]
    + [("tokens_s,loss", "299593,2.1", 3.5), ("total steps,wall time", "1000,9000", None)]
    + [("steps,elapsed", "1000,3500 s", 3.5), ("loss,days for 1T tokens", "2.1,100", 100 * 86400 * 2**20 / 1e12)]
    + [("total tokens,training time (days)", "1T,100", 100 * 86400 * 2**20 / 1e12)]
    + [("total tokens,GPU hours (millions)", "1T,0.1536", 100 * 86400 * 2**20 / 1e12)],
)  # fmt: skip
def test_steps_of_whole_runs_and_counts_that_are_no_rates(tmp_path, header, cells, step_s):
    table = f"{HEADER.rsplit(',', 1)[0]},{header}\n{ROW.rsplit(',', 1)[0]},{cells}\n"
    found = read(tmp_path, table)[0].measured_step_s
    assert found == (step_s if step_s is None else pytest.approx(step_s, rel=1e-3))


@pytest.mark.parametrize("header", ["num microbatches", "microbatches", "Micro Batches"])
def test_numbers_of_microbatches_are_no_sizes_in_another_language(tmp_path, header):
    table = f"{HEADER},{header}\n{ROW},16\n".replace("global_batch_sequences,", "").replace(",256,", ",")
    found = read(tmp_path, table)[0]
    assert (int(found.workload.batch), found.plan.microbatch) == (16 * 16, 1)


@pytest.mark.parametrize(
    ("header", "cells", "of_hardware"),
    [
        ("MFU,HFU", "33 %,44 %", False),
        ("MFU", "HFU 44 %", True),
        ("MFU", "44 % (HFU)", True),
        ("HFU", "MFU 33 %", False),
    ]
    + [("MFU", "33 % (HFU 44)", False)],
)
def test_a_cell_says_of_what_its_share_is(tmp_path, header, cells, of_hardware):
    """A third more FLOP where all is computed again."""
    table = f"{HEADER.rsplit(',', 1)[0]},recompute,{header}\n{ROW.rsplit(',', 1)[0]},full,{cells}\n"
    found = timed_by_rate(read(tmp_path, table)[0])
    assert found.assumed[-1].endswith("recomputation counted") == of_hardware
    plain = timed_by_rate(read(tmp_path, table.replace(header, "MFU").replace(cells, "33 %"))[0])
    assert found.measured_step_s == pytest.approx(plain.measured_step_s, rel=0.001)


@pytest.mark.parametrize("first", ["", "parameter,run a,run b"])
def test_a_run_in_each_column(tmp_path, first):
    """As people put few runs beside each other; a line of names above them is one more column."""
    pairs = zip(HEADER.split(","), ROW.split(","), strict=True)
    lines = [f"{name.replace('_', ' ')}, {cell}, {'128' if name == 'gpus' else cell}" for name, cell in pairs]
    found = read(tmp_path, "\n".join([*filter(None, [first]), *lines]) + "\n", 2)
    assert figures(found[0]) == READ
    assert figures(found[1]) == (128, *READ[1:])


@pytest.mark.parametrize(
    "table", ["runs,a,b\nmodel,x,y\nlayers,8,8\n", "hardware,H100,H100\ngpus,8\n", "hardware\ngpus\n"]
)
def test_columns_that_are_no_runs_are_refused_in_one_line(tmp_path, table):
    with pytest.raises(SpecError, match="at least hardware, gpus"):
        read(tmp_path, table)


@pytest.mark.parametrize(
    ("header", "cell", "step_s"),
    [("tokens/s (k)", "299.593", 3.5), ("tokens/s (M)", "0.299593", 3.5), ("Tokens/s/GPU [K]", "4.681143", 3.5)]
    + [("tokens/day (B)", "25.9", None), ("tokens/s (millions)", "0.299593", 3.5), ("tok/s (avg)", "299593", 3.5)],
)
def test_rates_are_scaled_by_what_stands_in_brackets(tmp_path, header, cell, step_s):
    table = f"{HEADER.rsplit(',', 1)[0]},{header}\n{ROW.rsplit(',', 1)[0]},{cell}\n"
    found = read(tmp_path, table)[0].measured_step_s
    assert found == (step_s if step_s is None else pytest.approx(step_s, rel=1e-3))


def test_the_rate_of_megatrons_log_is_one_of_flop(tmp_path):
    header = "throughput per GPU (TFLOP/s/GPU)"
    table = f"{HEADER.rsplit(',', 1)[0]},{header}\n{ROW.rsplit(',', 1)[0]},380\n"
    assert "380 TFLOP/s" in timed_by_rate(read(tmp_path, table)[0]).assumed[-1]
