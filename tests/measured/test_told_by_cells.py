"""Columns whose names say little, and whose cells say the rest: units, machines of clouds, formats, settings."""

import pytest

from costmodel.inputs import parameters
from costmodel.measured.rows import Case, read_cases, timed_by_rate
from costmodel.measured.rows.headers.machines import of_host

MORE = "seq,gbs,tp,pp"
OF_ROW = "4096,256,2,2"


def read(tmp_path, header, row):
    path = tmp_path / "rows.csv"
    path.write_text(f"{header},{MORE}\n{row},{OF_ROW}\n")
    (found,) = read_cases(path)
    assert isinstance(found, Case), found
    return timed_by_rate(found)


@pytest.mark.parametrize(
    ("header", "cells", "accelerators", "of_a_node"),
    [
        ("Instance,Count,model", "p5.48xlarge,16,Llama-2-7B", 128, 8),
        ("Instance type,# instances,model", "p4d.24xlarge,2,Llama-2-7B", 16, 8),
        ("Instance,Qty,model", "trn2.48xlarge,4,Llama-2-7B", 64, 4),
        ("VM,Nodes,model", "ND96isr_H100_v5,8,Llama-2-7B", 64, 8),
        ("machine type,nodes,model", "a3-megagpu-8g,4,Llama-2-7B", 32, 8),
        ("GPU type,count,model", "H100,64,Llama-2-7B", 64, 8),
        ("GPU type,count,model", "p5.48xlarge,64,Llama-2-7B", 64, 8),
        ("GPU,#,model", "H100 SXM,64,Llama-2-7B", 64, 8),
        ("Card,model", "64x H100 80GB,Llama-2-7B", 64, 8),
        ("GPU,model", "H100 x 64,Llama-2-7B", 64, 8),
        ("Nodes x GPUs,GPU,model", "16x4,GH200,Llama-2-7B", 64, 4),
        ("gpu type,gpu num,model", "H100,64,Llama-2-7B", 64, 8),
        ("Cluster,GPUs used,model", "H100,64,Llama-2-7B", 64, 8),
        ("GPU Model,Count per node,Nodes,model", "GH200,4,16,Llama-2-7B", 64, 4),
        ("Instance type,Trn instances,model", "trn1.32xlarge,4,Llama-2-7B", 64, 4),
        ("GPUs \u00d7 nodes,GPU,model", "4x16,GH200,Llama-2-7B", 64, 4),
    ],
)
def test_accelerators_and_their_number(tmp_path, header, cells, accelerators, of_a_node):
    found = read(tmp_path, header, cells)
    assert found.cluster.accelerators == accelerators
    assert found.cluster.tiers[0].size == of_a_node


@pytest.mark.parametrize("cells", ["H100 (80),Llama-2-7B", "GB200 NVL36x2,Llama-2-7B", "RTX 4090,Llama-2-7B"])
def test_numbers_that_count_no_accelerators(tmp_path, cells):
    path = tmp_path / "rows.csv"
    path.write_text(f"GPU,model,{MORE}\n{cells},{OF_ROW}\n")
    with pytest.raises(ValueError, match="at least hardware, gpus"):
        read_cases(path)


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("DGX-2", 16),
        ("DGX H100", 8),
        ("p3.2xlarge", 1),
        ("BM.GPU.H100.8", 8),
        ("NVIDIA H100", None),
        ("DGX Spark", None),
    ],
)
def test_machines_by_their_names(name, each):
    assert of_host(name) == each


TIMES = [
    ("iteration", "3.5 s/it", 3.5),
    ("iteration", "3500 ms/it", 3.5),
    ("Iter", "3500 ms", 3.5),
    ("Perf (TFLOPS/GPU)", "300", 2.517),  # Megatron's: 6 of each matrix' parameters, 12 L h s of attention, a token
    ("performance (tokens/s)", "299593", 3.5),
    ("throughput", '"4,681 tok/s/gpu"', 3.5),
    ("speed", "299.6k tokens/s", 3.5),
    ("speed", "fast", None),
    ("iteration", "100", None),
    ("time", "12:30", None),
    ("time", "90 min", None),
    ("step time", "2 min", 120.0),
]


@pytest.mark.parametrize(("column", "cell", "step_s"), TIMES)
def test_units_behind_numbers(tmp_path, column, cell, step_s):
    found = read(tmp_path, f"hardware,gpus,model,{column}", f"H100,64,Llama-2-7B,{cell}").measured_step_s
    assert found == (step_s if step_s is None else pytest.approx(step_s, rel=1e-3))


@pytest.mark.parametrize(
    ("column", "cell", "precision"),
    [("float8", "true", "fp8_tensor"), ("fp8", "1", "fp8_tensor"), ("fp8", "no", "bf16"), ("DT", "FP8", "fp8_tensor")]
    + [("bf16,fp8", "1,1", "fp8_tensor"), ("fp16,fp8", "1,0", "fp16")],
)
def test_flags_of_formats(tmp_path, column, cell, precision):
    assert read(tmp_path, f"hardware,gpus,model,{column}", f"H100,64,Llama-2-7B,{cell}").plan.precision == precision


def test_a_flavor_is_of_its_model(tmp_path):
    found = read(tmp_path, "flavor,hardware,gpus,model", "70B,H100,64,llama3")
    assert found.row["model"] == "llama3 70B"


@pytest.mark.parametrize(
    ("column", "cell", "facts"),
    [
        ("offload", "cpu", {"host_optimizer": 1.0}),
        ("compile", "1", {"compiled": 1.0}),
        ("CUDA graphs", "off", {"cuda_graphs": 0.0}),
        ("cuda_graph_impl", "none", {"cuda_graphs": 0.0}),
        ("MoE dispatcher", "DeepEP", {"fast_dispatcher": 1.0}),
        ("async_tp", "yes", {"async_tp": 1.0}),
        ("LoRA", "no", {}),
        ("decode latency (ms)", "12", {}),
        ("sliding window", "1024", {"window": 1024.0}),
        ("with CUDA graphs", "9300", {}),
        ("tags", "baseline", {}),
        ("seed", "42", {}),
        ("loss", "2.31", {}),
        ("layout of rank 0", "tp8", {}),
    ],
)
def test_columns_of_settings_are_read_as_notes(tmp_path, column, cell, facts):
    found = read(tmp_path, f"hardware,gpus,model,{column}", f"H100,64,Llama-2-7B,{cell}")
    assert {name: found.facts.get(name) for name in facts} == facts
    assert bool(found.facts) == bool(facts)
    assert any(f"{column} as notes" in told for told in found.assumed) == bool(facts)


def test_a_column_of_other_training_refuses_its_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("hardware,gpus,model,LoRA\nH100,8,Llama-2-7B,yes\nH100,8,Llama-2-7B,no\n")
    refused, read = read_cases(path)
    assert not isinstance(refused, Case)
    assert "only adapters are trained" in refused.reason
    assert isinstance(read, Case)


@pytest.mark.parametrize(
    ("header", "cells", "read_as"),
    [
        ("Act ckpt", "full", ("recompute", "full")),
        ("Setting", "+ VPP2", ("virtual_stages", 2)),
        ("V", "2", ("virtual_stages", 2)),
        ("dp,fsdp", "2,8", ("data_shard", 8)),
        ("rc", "sel", ("recompute", "selective")),
        ("iteration time/ms", "3500", None),
        ("mesh", '"fsdp=32,tp=2"', ("tensor", 2)),
        ("summary.train_step_timing in s", "3.5", None),
    ],
)
def test_other_columns_of_plans_and_times(tmp_path, header, cells, read_as):
    found = read(tmp_path, f"hardware,gpus,model,{header}", f"H100,64,Llama-2-7B,{cells}")
    assert found.measured_step_s == 3.5 if read_as is None else getattr(found.plan, read_as[0]) == read_as[1]


def test_sections_in_sections_and_units_of_batches(tmp_path):
    path = tmp_path / "rows.csv"
    header = "config.hardware.name,config.hardware.count,model,Prec,seq,Batch(seq),Tensorparallel,Pipelineparallel"
    path.write_text(f"{header}\nH100,64,Llama-2-7B,fp8,4096,512,2,4\n")
    (found,) = read_cases(path)
    assert isinstance(found, Case)
    plan = found.plan
    read_as = (found.cluster.accelerators, found.workload.batch, plan.precision, plan.tensor, plan.pipeline)
    assert read_as == (64, 512, "fp8_tensor", 2, 4)


def test_sizes_in_sections_of_degrees(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(
        '[{"hardware": "H100", "gpus": 64, "model": "Llama-2-7B", "gbs": 256, "seq": 4096,'
        ' "parallel": {"tensor": {"size": 2}, "pipeline": {"size": 4}}}]'
    )
    (found,) = read_cases(path)
    assert isinstance(found, Case)
    assert (found.plan.tensor, found.plan.pipeline) == (2, 4)
    assert parameters(found.workload) > 6e9


@pytest.mark.parametrize(("column", "cell"), [("peak_memory_allocated", "68719476736"), ("GB", "68.719476736")])
def test_a_peak_of_memory_in_bytes(tmp_path, column, cell):
    assert read(tmp_path, f"hardware,gpus,model,{column}", f"H100,64,x 7B,{cell}").measured_mem_bytes == 68719476736


def test_days_of_trillions_of_tokens(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("GPU,GPUs,model,Batch (M tokens),Days,Tokens (T)\nH100,2048,Llama 3 70B,8,39,2\n")
    (found,) = read_cases(path)
    assert isinstance(found, Case)
    assert found.measured_step_s == pytest.approx(39 * 86400 * 8e6 / 2e12, rel=1e-3)


def test_what_stands_behind_its_noun(tmp_path):
    header = "hardware,gpus,model,seq,batch size global,bsz-micro,tp,pp,VRAM used (GB)"
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\nH100,64,Llama-2-7B,4096,512,2,2,1,61\n")
    (found,) = read_cases(path)
    assert isinstance(found, Case)
    assert (found.workload.batch, found.plan.microbatch, found.measured_mem_bytes) == (512, 2, 61e9)
