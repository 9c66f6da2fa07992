"""What the golden tests and the programs that make their files share: places, the engine tool, comparisons."""
import hashlib
import json
import os
import pathlib
import subprocess

import numpy as np

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


def log_softmax(logits):
    wide = logits.astype(np.float64)
    high = wide.max(-1, keepdims=True)
    return wide - high - np.log(np.exp(wide - high).sum(-1, keepdims=True))


class Rows:
    """Reference rows: full, or the largest logits of each and the log-sum-exp of all.

    The small form's KL puts every other token into one: it is at most the full one (data processing), and lower by
    about the share of the probability that lies outside, which is the test's to state.
    """

    def __init__(self, file):
        if "logits" in file:
            self.ids, self.log_p = None, log_softmax(file["logits"])
            top = np.sort(file["logits"], axis=1)[:, -2:]
            self.best = file["logits"].argmax(1)
        else:
            self.ids = np.cumsum(file["id_deltas"], axis=1)
            self.log_p = file["top"].astype(np.float64) - file["lse"][:, None]
            top = np.sort(file["top"], axis=1)[:, -2:]
            self.best = np.take_along_axis(self.ids, file["top"].argmax(1)[:, None], 1)[:, 0]
        self.gap = top[:, 1] - top[:, 0]

    def __len__(self):
        return len(self.log_p)

    def outside(self):
        """The probability that the rows don't hold."""
        return 0 * self.gap if self.ids is None else 1 - np.exp(self.log_p).sum(1)

    def kl(self, logits):
        """KL(reference || logits) of each row, in nats, in double."""
        log_q = log_softmax(logits)
        if self.ids is None:
            return (np.exp(self.log_p) * (self.log_p - log_q)).sum(1)
        log_q = np.take_along_axis(log_q, self.ids, 1)
        kl = (np.exp(self.log_p) * (self.log_p - log_q)).sum(1)
        p, q = (1 - np.exp(x).sum(1) for x in (self.log_p, log_q))
        return kl + p * np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))

    def flips(self, logits):
        """The reference's gap between its two largest logits, of each row whose argmax differs."""
        return self.gap[logits.argmax(1) != self.best]
