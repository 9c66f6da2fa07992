"""KV pages on disk: what falls out of memory and what was there at a stop is read back instead of computed, bit for bit;
damaged files are refused, removed and computed again."""

import random

import pytest

from api import bits, until
from pipeline import ROLES, pipeline_with

WORDS = "the sea is deep and old ships sleep under it while small fish tell each other stories about the sun ".split()


def prompt(seed, n=200):
    return {"prompt": " ".join(random.Random(seed).choices(WORDS, k=n)), "max_tokens": 6, "temperature": 0, "logprobs": 5,
            "return_token_ids": True}


def ask(pipeline, seed):
    answer = pipeline.complete(**prompt(seed))
    return bits(answer), answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def disk_cache(folder, *more, kv_tokens=1024):
    return {"npu-worker": ["--disk-cache", folder, *more], "keeper": ["--kv-tokens", kv_tokens, "--ctx", 1024, "--slots", 2]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages") / "store"


def test_pages_survive_eviction_and_a_restart_of_everything(folder):
    with pipeline_with(options=disk_cache(folder)) as pipeline:
        fresh = {seed: ask(pipeline, seed)[0] for seed in range(6)}
        # Six prompts of some 210 tokens are more than the 1,024 in memory: the first ones come from disk.
        for seed in fresh:
            again, cached = ask(pipeline, seed)
            assert again == fresh[seed] and cached >= 128, seed
    assert list(folder.glob("*.kvpage")) and not list(folder.glob(".saving*"))
    with pipeline_with(options=disk_cache(folder)) as pipeline:
        for seed in fresh:
            again, cached = ask(pipeline, seed)
            assert again == fresh[seed] and cached >= 128, seed
    with pipeline_with(options={"keeper": ["--ctx", 1024]}) as pipeline:
        assert all(ask(pipeline, seed) == (fresh[seed], 0) for seed in (0, 3))


def test_pages_survive_kill_9_of_everything(folder):
    with pipeline_with(options=disk_cache(folder)) as pipeline:
        before = len(list(folder.glob("*.kvpage")))
        fresh, cached = ask(pipeline, 100)
        assert cached == 0
        until(lambda: len(list(folder.glob("*.kvpage"))) >= before + 3, 30, "the idle worker's writing")
        for role in ROLES:
            pipeline.kill(role)
    with pipeline_with(options=disk_cache(folder)) as pipeline:
        again, cached = ask(pipeline, 100)
        assert again == fresh and cached >= 128


def test_damaged_files_are_dropped(folder):
    files = sorted(folder.glob("*.kvpage"))
    draw = random.Random(5)
    for i, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if i % 3 == 0:
            data = data[:draw.randrange(len(data))]
        elif i % 3 == 1:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            data = bytearray(files[(i + 1) % len(files)].read_bytes())
        file.write_bytes(data)
    with pipeline_with(options=disk_cache(folder)) as pipeline:
        damaged = [ask(pipeline, seed) for seed in range(3)]
        assert [cached for _, cached in damaged] == [0, 0, 0]
        assert "is damaged: removed" in pipeline.log("npu-worker", 0)
        again = [ask(pipeline, seed) for seed in range(3)]
        assert [answer for answer, _ in again] == [answer for answer, _ in damaged]
    with pipeline_with(options={"keeper": ["--ctx", 1024]}) as pipeline:
        assert [ask(pipeline, seed)[0] for seed in range(3)] == [answer for answer, _ in damaged]


@pytest.mark.parametrize("family", ["a8-v1", "a16-kv8-v1"])
def test_another_family_finds_nothing(folder, family):
    options = disk_cache(folder)
    options["keeper"] += ["--family", family]
    with pipeline_with(options=options) as pipeline:
        assert ask(pipeline, 0)[1] == 0


def test_the_limit_holds(tmp_path):
    with pipeline_with(options=disk_cache(tmp_path / "small", "--disk-cache-mb", "16")) as pipeline:
        for seed in range(8):
            ask(pipeline, seed)
        assert 0 < sum(file.stat().st_size for file in (tmp_path / "small").iterdir()) <= 16 << 20
    assert sum(file.stat().st_size for file in (tmp_path / "small").iterdir()) <= 16 << 20


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception):
        with pipeline_with(options=disk_cache(tmp_path / "file" / "pages")):
            pass
