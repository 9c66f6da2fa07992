"""The real models as Q4NX folders: there and back, and each served from both: a folder's answers are those of the GGUF file
that is written back from it, bit for bit."""

import os
import shutil
import subprocess

import pytest

from api import bits, user, whole_of
from pipeline import BUILD, model_path, pipeline_with

MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf",
          "gemma": "gemma-3-270m-Q4_K_M.gguf"}
LONG = bool(os.environ.get("LOCKSTEP_LONG"))


def model(*words):
    done = subprocess.run([BUILD / "bin/lockstep", "model", *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The default model's."""
    path = tmp_path_factory.mktemp("q4nx") / "SmolLM2.Q4NX"
    model("convert", model_path(), path)
    return path


@pytest.mark.parametrize("name", MODELS if LONG else ["smollm2"])
def test_there_and_back(name, tmp_path):
    source = model_path(MODELS[name])
    model("convert", source, tmp_path / "a")
    model("convert", tmp_path / "a", tmp_path / "second.gguf")
    model("convert", tmp_path / "second.gguf", tmp_path / "b")
    model("convert", tmp_path / "b", tmp_path / "third.gguf")
    for one, other in (("a/model.q4nx", "b/model.q4nx"), ("second.gguf", "third.gguf")):
        assert subprocess.run(["cmp", tmp_path / one, tmp_path / other]).returncode == 0
    assert "all finite" in model("verify", tmp_path / "a", source)
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def ask(pipeline):
    answers = [pipeline.chat("What is the capital of France?", temperature=0, max_tokens=24, logprobs=True, top_logprobs=5),
               pipeline.chat("Tell me a story.", temperature=0.8, seed=5, max_tokens=40, logprobs=True, top_logprobs=5)]
    return [answer["choices"] for answer in answers], answers[0]["system_fingerprint"]


@pytest.mark.parametrize("name", MODELS)
def test_served_as_the_file_that_it_stands_for(name, tmp_path):
    folder, back = tmp_path / "there", tmp_path / "back.gguf"
    model("convert", model_path(MODELS[name]), folder)
    model("convert", folder, back)
    answers = []
    for served in (folder, back):
        with pipeline_with(model=served, options={"keeper": ["--ctx", 1024, "--slots", 2]}) as pipeline:
            greedy, drawn = (pipeline.complete("The capital of France is", max_tokens=64 if LONG else 8, logprobs=5, return_token_ids=True,
                                               **how) for how in ({"temperature": 0}, {"temperature": 0.8, "seed": 5}))
            answers.append((bits(greedy), bits(drawn), greedy["system_fingerprint"]))
            assert pipeline.get("/v1/models").json["data"][0]["id"] == served.name.removesuffix(".gguf")
    whole, = whole_of(greedy).values()
    assert answers[0] == answers[1] and ("France" in whole.text or "Paris" in whole.text)
    back.unlink()
    shutil.rmtree(folder)


def test_a_killed_worker_attaches_to_what_was_packed(folder):
    """It doesn't convert the folder again; the answer after it is the same. The template comes from the folder too."""
    with pipeline_with(model=folder, options={"keeper": ["--ctx", 1024, "--slots", 2]}) as pipeline:
        prompt = pipeline.post("/apply-template", messages=user("Hi"))["prompt"]
        assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        before = ask(pipeline)
        pipeline.kill("npu-worker")
        pipeline.start("npu-worker")
        pipeline.wait_ready()
        assert ask(pipeline) == before
        assert pipeline.log("npu-worker").count("packed the weights") == 1


def test_unknown_kinds_of_folders_are_refused(tmp_path):
    done = subprocess.run([BUILD / "bin/lockstep-keeper", "--run-dir", tmp_path / "run", "--model", tmp_path], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 78 and "model.q4nx" in done.stderr
