from __future__ import annotations

import pytest

from lightgate.bench.watch.readings import Reading, read_engine, read_smi, with_readings
from lightgate.ledger.runs.run import CellSummary, Run
from lightgate.report.tables.sentences import engine_sentences

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 5.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_requests_running_total 9
"""
SGLANG = """sglang:num_running_reqs{model_name="m",tp_rank="0"} 4
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 1
sglang:token_usage{model_name="m",tp_rank="0"} 0.1
"""
LLAMA = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 7\n"
TGI = "tgi_batch_current_size 8\ntgi_queue_size NaN\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VLLM, ("vLLM", 8.0, 2.0, 0.75)),
        (SGLANG, ("SGLang", 4.0, 1.0, 0.1)),
        (LLAMA, ("llama.cpp", 2.0, 7.0, None)),
        (TGI, ("TGI", 8.0, None, None)),
    ],
)
def test_each_engine_by_its_own_names(text: str, expected: tuple[object, ...]) -> None:
    found = read_engine(text.encode(), "lab/m", 5)
    assert found is not None
    assert (found.engine, found.running, found.waiting, found.cache) == expected
    assert (found.target, found.t_ns) == ("lab/m", 5)


@pytest.mark.parametrize("text", ["", "<html>", "up 1\n", "vllm:num_requests_waiting 3\n"])
def test_a_page_of_no_known_engine(text: str) -> None:
    assert read_engine(text.encode(), "lab/m", 5) is None


def test_power_is_added_up_over_gpus() -> None:
    found = read_smi("412.50, 90\n100.5, 70\n", 9)
    assert found == Reading(t_ns=9, watts=513.0, gpu=0.8)
    assert read_smi("[N/A], 50\n", 9) == Reading(t_ns=9, gpu=0.5)
    assert read_smi("NVIDIA-SMI has failed\n", 9) is None


def test_a_cell_has_what_was_read_in_its_windows() -> None:
    cell = CellSummary(
        target="lab/m", load="c=8", throughput_tps=800.0, windows_ns=((10, 20), (30, 40))
    )
    readings = [
        Reading(t_ns=5, target="lab/m", engine="vLLM", running=99.0),
        Reading(t_ns=10, target="lab/m", engine="vLLM", running=8.0, waiting=1.0, cache=0.5),
        Reading(t_ns=35, target="lab/m", engine="vLLM", running=6.0, waiting=3.0, cache=0.7),
        Reading(t_ns=36, target="other/m", engine="vLLM", running=50.0),
        Reading(t_ns=12, watts=300.0, gpu=0.9),
        Reading(t_ns=38, watts=500.0, gpu=0.7),
        Reading(t_ns=40, watts=9000.0, gpu=0.0),
    ]
    run = with_readings(Run(id="r", started="now", cells=(cell,)), readings)
    engine, gpu = run.cells[0].engine, run.cells[0].gpu
    assert engine is not None
    assert (engine.n, engine.running, engine.waiting, engine.waiting_most) == (2, 7.0, 2.0, 3.0)
    assert engine.cache_most == 0.7
    assert gpu is not None
    assert (gpu.n, gpu.watts, gpu.tokens_per_joule) == (2, 400.0, 2.0)
    assert gpu.use == pytest.approx(0.8)
    (said,) = engine_sentences(run)
    assert said == (
        "lab/m at c=8: vLLM has 7.00 running, 2.00 waiting (at most 3.00), KV cache used up to"
        " 70 %, GPU busy 80 % of the time, 400 W, 2.00 tokens per joule."
    )


def test_a_cell_that_nobody_watched_says_nothing() -> None:
    cell = CellSummary(target="lab/m", load="c=8", windows_ns=((10, 20),))
    run = with_readings(Run(id="r", started="now", cells=(cell,)), [])
    assert (run.cells[0].engine, run.cells[0].gpu) == (None, None)
    assert engine_sentences(run) == []
