"""KV pages that one worker keeps for later are another one's when it needs them."""

from api import join, together
from pipeline import pipeline_with

BODY = {"max_tokens": 500, "temperature": 0, "ignore_eos": True}


def test_an_idle_worker_lets_go_of_what_it_caches():
    """The first worker has all pages, for prompts that may come again; the second one gets what it needs."""
    with pipeline_with(options={"keeper": ["--ctx", "1024", "--slots", "4", "--kv-tokens", "2048"]}) as pipeline:
        total = pipeline.status()["pages"]["total"]
        for i in range(10):
            pipeline.complete(f"{i} and " * 150, max_tokens=1, temperature=0)
        assert pipeline.status()["pages"]["free"] < total / 2
        prompts = [f"Another story, number {i}: " for i in range(4)]
        alone = [pipeline.complete(prompt, **BODY)["choices"] for prompt in prompts]
        pipeline.start("npu-worker", 1)
        pipeline.wait_ready()
        for _ in range(3):
            beside = together(4, lambda prompt: pipeline.complete(prompt, **BODY)["choices"], prompts)
            assert beside == alone
        steps = [line for line in pipeline.get("/metrics").data.decode().splitlines() if line.startswith("lockstep_worker_steps_total{")]
        assert len(steps) == 2 and not any(line.endswith(" 0") for line in steps), steps
        assert join(pipeline.events("/v1/completions", prompt=prompts[0], **BODY))
