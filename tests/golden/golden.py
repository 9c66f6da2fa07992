"""What the golden tests and the programs that make their files share: places, the engine tool."""
import hashlib
import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
DATA = HERE / "data"
FULL = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep/test-data/engine"
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf",
          "gemma": "gemma-3-270m-Q4_K_M.gguf"}
STEPS, LONG = 24, 3000


def models_dir():
    return pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))


def tool_path():
    return pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release")) / "test/lockstep-engine-tool"


def lockstep_path():
    return pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release")) / "bin/lockstep"


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def run_engine(model, jobs, **options):
    """Runs the jobs (dictionaries, or lists of them that share their steps) through lockstep-engine-tool."""
    command = [tool_path(), "--model", model]
    for key, value in options.items():
        command += ["--" + key.replace("_", "-")] + ([] if value is True else [str(value)])
    lines = "".join(json.dumps({"batch": job} if isinstance(job, list) else job) + "\n" for job in jobs)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
