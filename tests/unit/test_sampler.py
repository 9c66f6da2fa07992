"""Compares the sampler library with independent implementations in numpy: every filter, penalty, draw and log-probability,
and the text of every token with Python's own decoder. The library answers JSON lines (sampler/smp_draw_test_main.c).

The oracle works in float64 on the distribution's definition, the library on integer weights: a case whose cut or draw lies
closer than 1e-6 to a boundary is ambiguous and left out, and few may be.
"""

import json
import math
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release"))
PROGRAM = BUILD / "test/smp_draw_test"
NEAR = 1e-6
FINISH_STOP, FINISH_LENGTH = 1, 2


def ask_all(requests):
    assert PROGRAM.exists(), f"{PROGRAM} is missing: build it with ninja -C {BUILD} smp_draw_test"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests)
    return answers


def ask(**request):
    return ask_all([request])[0]


def listed(logits):
    """Logits as JSON: float32 values, infinities as words."""
    return [float(x) if math.isfinite(x) else str(float(x)) for x in np.asarray(logits, np.float32)]


# ---- the oracle


def philox4x32(counter, key, rounds=10):
    c, k = list(counter), list(key)
    for _ in range(rounds):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def fraction(seed, choice, position):
    low, high, *_ = philox4x32([position, choice, 0, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return ((high << 32 | low) >> 11) / 2**53


class Ambiguous(Exception):
    pass


def prefix(order, p, share):
    """The shortest prefix of order whose probabilities p sum up to a share of all."""
    sums = np.cumsum(p[order]) / p[order].sum()
    if np.abs(sums - share).min() < NEAR:
        raise Ambiguous
    return order[: np.searchsorted(sums, share) + 1]


def kept_tokens(x, params):
    """Ids and probabilities, in order of ids, that the filters leave of float32 logits x."""
    temperature = params.get("temperature", 1)
    scaled = (x.astype(np.float64) - float(x.max())) / temperature
    p = np.exp(scaled)
    p[p < 2.0**-43] = 0
    ids = np.flatnonzero(np.isfinite(x))
    if 0 < params.get("top_k", 0) < len(x):
        ids = np.sort(ids[np.lexsort((ids, -x[ids]))][: params["top_k"]])
    if params.get("typical_p", 1) < 1:
        ids = ids[p[ids] > 0]
        q = p[ids] / p[ids].sum()
        distance = np.abs(-np.log(q) - (-(q * np.log(q)).sum()))
        order = ids[np.lexsort((ids, distance.astype(np.float32)))]
        kept = prefix(order, p, float(np.float32(params["typical_p"])))
        edge = np.sort(distance)[len(kept) - 1 : len(kept) + 1]
        if len(edge) == 2 and edge[1] - edge[0] < 1e-5:
            raise Ambiguous
        ids = np.sort(kept)
    if params.get("top_p", 1) < 1:
        order = ids[np.lexsort((ids, -x[ids]))]
        ids = np.sort(prefix(order, p, float(np.float32(params["top_p"]))))
    if params.get("min_p", 0) > 0:
        relative = p[ids] / p[ids].max() - float(np.float32(params["min_p"]))
        if np.abs(relative).min() < NEAR * params["min_p"]:
            raise Ambiguous
        ids = ids[relative >= 0]
    return ids, p[ids] / p[ids].sum()


def changed_logits(logits, params, prompt, made, ends=(), allowed=None):
    """Bias, penalties and masks, in float32."""
    x = np.array(logits, np.float32)
    for token, bias in params.get("logit_bias", []):
        x[token] += np.float32(bias)
    window = params.get("repetition_window", 0)
    text = (prompt + made)[-window:] if window else prompt + made
    repetition = np.float32(params.get("repetition_penalty", 1))
    for token in set(text):
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
    for token in set(made):
        frequency, presence = (np.float32(params.get(f"{name}_penalty", 0)) for name in ("frequency", "presence"))
        x[token] -= frequency * np.float32(made.count(token)) + presence
    if len(made) < params.get("min_tokens", 0):
        x[[*ends, *params.get("stop_token_ids", [])]] = -np.inf
    if allowed is not None:
        x[np.setdiff1d(np.arange(len(x)), allowed)] = -np.inf
    return x


def oracle_draw(logits, params, prompt, made, **masks):
    x = changed_logits(logits, params, prompt, made, **masks)
    if params.get("temperature", 1) < 1e-5:
        return int(np.argmax(x))
    ids, p = kept_tokens(x, params)
    sums = np.cumsum(p)
    u = fraction(params.get("seed", 0), params.get("choice", 0), len(made))
    if np.abs(sums - u).min() < NEAR:
        raise Ambiguous
    return int(ids[np.searchsorted(sums, u, side="right")])


def test_oracle_philox():
    """The known answers that Random123 publishes."""
    assert philox4x32([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox4x32([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]
    assert philox4x32(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


# ---- draws, token for token

FILTERS = {
    "temperature": lambda r: r.choice([0.05, 0.3, 0.7, 1, 1, 1.5, 4, 100]),
    "top_k": lambda r: r.choice([1, 2, 5, 40, 200, 2**31 - 1]),
    "top_p": lambda r: r.choice([0.0, 0.1, 0.5, 0.9, 0.95, 0.999]),
    "min_p": lambda r: r.choice([1e-9, 0.001, 0.05, 0.3, 1.0]),
    "typical_p": lambda r: r.choice([0.1, 0.5, 0.9]),
    "repetition_penalty": lambda r: r.choice([0.8, 1.1, 1.7]),
    "repetition_window": lambda r: r.choice([1, 3, 8]),
    "presence_penalty": lambda r: r.uniform(-2, 2),
    "frequency_penalty": lambda r: r.uniform(-2, 2),
}


def random_case(r):
    n = r.choice([1, 2, 7, 50, 1000, 1024, 1025, 3000, 5000])
    kind = r.choice(["peaked", "flat", "steps", "holes"])
    x = np.random.default_rng(r.randrange(2**32)).normal(0, {"flat": 0.3}.get(kind, 3), n).astype(np.float32)
    if kind == "steps":
        x = np.round(x)
    if kind == "holes" and n > 1:
        x[r.sample(range(n), n // 2)] = -np.inf
    params = {"seed": r.randrange(2**63), "choice": r.randrange(4)}
    for name in r.sample(sorted(FILTERS), r.randrange(5)):
        value = FILTERS[name](r)
        params[name] = value if isinstance(value, int) else float(np.float32(value))
    if r.random() < 0.3:
        params["logit_bias"] = [[r.randrange(n), r.choice([-100, -1.5, 3, 100])] for _ in range(3)]
    prompt = [r.randrange(n) for _ in range(r.randrange(6))]
    return {"logits": x, "params": params, "prompt": prompt, "draws": 4}


@pytest.mark.parametrize("isa", ["auto", "avx2", "scalar"])
def test_draws_equal_the_oracle(isa):
    r = random.Random(20240611)
    cases = [random_case(r) for _ in range(600)]
    answers = ask_all([{**case, "logits": listed(case["logits"]), "isa": isa} for case in cases])
    if isa == "avx2" and answers[0].get("error") == "bad_configuration":
        pytest.skip("this CPU has no AVX2")
    checked = ambiguous = 0
    for case, answer in zip(cases, answers):
        assert "error" not in answer, (case["params"], answer)
        for at, token in enumerate(answer["tokens"]):
            try:
                expected = oracle_draw(case["logits"], case["params"], case["prompt"], answer["tokens"][:at])
            except Ambiguous:
                ambiguous += 1
                continue
            assert token == expected, (case["params"], len(case["logits"]), at)
            checked += 1
    assert checked > 2000 and ambiguous < 250, (checked, ambiguous)


def test_masks_equal_the_oracle():
    r = random.Random(7)
    for _ in range(60):
        n = r.choice([5, 40, 1500])
        x = np.array([r.gauss(0, 2) for _ in range(n)], np.float32)
        ends = r.sample(range(n), 2)
        params = {"seed": r.randrange(2**32), "min_tokens": 3, "stop_token_ids": r.sample(range(n), 1)}
        allowed = sorted({*r.sample(range(n), n // 2), next(i for i in range(n) if i not in ends + params["stop_token_ids"])})
        answer = ask(logits=listed(x), params=params, ends=ends, allowed=allowed, draws=6)
        for at, token in enumerate(answer["tokens"]):
            try:
                assert token == oracle_draw(x, params, [], answer["tokens"][:at], ends=ends, allowed=allowed)
            except Ambiguous:
                pass


def test_grammar_outranks_min_tokens():
    answer = ask(logits=[1, 2, 3], params={"min_tokens": 3}, ends=[1], allowed=[1], draws=9)
    assert answer == {"tokens": [1], "finish": FINISH_STOP}


def test_equal_logits_show_the_fraction_itself():
    """With n equal logits the token is floor(u n): the draw's 53 bits, seen from outside."""
    n = 1 << 12
    for seed, choice in [(0, 0), (42, 0), (42, 3), (2**63 - 1, 1)]:
        answer = ask(logits=[1.25] * n, params={"seed": seed, "choice": choice}, draws=200)
        assert answer["tokens"] == [int(fraction(seed, choice, at) * n) for at in range(200)]


# ---- draws, as distributions


def chi_square_p(observed, expected):
    """Upper tail probability of the chi-square statistic, by Wilson and Hilferty's normal approximation."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    assert observed[expected == 0].sum() == 0, "a token of probability 0 was drawn"
    order = np.argsort(-expected)
    observed, expected = observed[order], expected[order]
    cut = max(2, int((expected >= 8).sum()))  # what is rarer goes into one cell
    if expected[cut:].sum() > 0:
        observed = np.append(observed[:cut], observed[cut:].sum())
        expected = np.append(expected[:cut], expected[cut:].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    degrees = len(expected) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    z = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return math.erfc(z / math.sqrt(2)) / 2


LOGITS = np.random.default_rng(3).normal(0, 1, 60).astype(np.float32)
DRAWS = 20000


def fits(tokens, params):
    """Whether tokens may be draws from the exact distribution of these parameters."""
    ids, p = kept_tokens(LOGITS, params)
    expected = np.zeros(len(LOGITS))
    expected[ids] = p * len(tokens)
    observed = np.bincount(tokens, minlength=len(LOGITS))
    return observed[expected == 0].sum() == 0 and chi_square_p(observed, expected) > 1e-4


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.5}, {"temperature": 3}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1}, {"typical_p": 0.6},
     {"temperature": 1.5, "top_k": 30, "top_p": 0.9, "min_p": 0.02}],
    ids=str,
)  # fmt: skip
def test_distribution_of_one_sequence(params):
    """Many positions under one seed: a generator that was reseeded for each draw would repeat one token."""
    assert fits(ask(logits=listed(LOGITS), params={**params, "seed": 42}, draws=DRAWS)["tokens"], params)


SECOND = float(np.exp(np.sort(LOGITS)[-2] - LOGITS.max()))  # the second largest probability, as a part of the largest
LARGEST = float(kept_tokens(LOGITS, {})[1].max())
ERRORS = [
    ({"temperature": 0.5}, {}), ({"temperature": 0.5}, {"temperature": 0.53}), ({}, {"temperature": 1.05}),
    ({"temperature": 3}, {"temperature": 1 / 3}), ({"top_k": 7}, {"top_k": 8}), ({"top_k": 7}, {"top_k": 6}), ({"top_k": 7}, {}),
    ({"top_p": 0.8}, {"top_p": 0.84}), ({"top_p": 0.8}, {"top_p": 0.76}), ({"top_p": 0.8}, {}),
    ({"min_p": 0.1}, {"min_p": 0.1 * SECOND}), ({"min_p": 0.1}, {"min_p": 0.1 / LARGEST}), ({"min_p": 0.1}, {}),
    ({"typical_p": 0.6}, {"typical_p": 0.63}), ({"typical_p": 0.6}, {"top_p": 0.6}),
    ({"temperature": 1.5, "top_p": 0.9}, {"temperature": 1.5, "top_p": 0.88}),
]


@pytest.mark.parametrize(("asked", "done"), ERRORS, ids=str)
def test_small_errors_would_be_seen(asked, done):
    """A sampler that does something else than it was asked: a parameter ignored, one token more, a threshold 5 % off, min_p by
    the second largest probability, or by the sum instead of the largest."""
    assert not fits(ask(logits=listed(LOGITS), params={**done, "seed": 42}, draws=DRAWS)["tokens"], asked)


def test_reseeding_each_draw_would_be_seen():
    """The same position of the stream for every token; or the stream begun anew every 64 tokens."""
    whole = ask(logits=listed(LOGITS), params={"seed": 42}, draws=DRAWS)["tokens"]
    assert fits(whole, {}) and not fits(whole[:1] * DRAWS, {}) and not fits((whole[:64] * DRAWS)[:DRAWS], {})


@pytest.mark.parametrize("vary", ["seed", "choice"])
def test_distribution_over_seeds_and_choices(vary):
    """One position, many seeds or choices in a row."""
    n = 4000
    answers = ask_all([{"logits": listed(LOGITS[:9]), "params": {vary: k}, "draws": 1} for k in range(n)])
    _, p = kept_tokens(LOGITS[:9], {})
    assert chi_square_p(np.bincount([a["tokens"][0] for a in answers], minlength=9), p * n) > 1e-4


def test_neighbours_are_independent():
    """Of positions, of seeds, of choices; and seed + 1 is not position + 1."""
    n = 8
    runs = {
        (seed, choice): ask(logits=[0] * n, params={"seed": seed, "choice": choice}, draws=6400)["tokens"]
        for seed, choice in [(42, 0), (43, 0), (42, 1)]
    }
    base, seed, choice = runs.values()
    for a, b in [(base, base[1:]), (base, seed), (base, choice), (base[1:], seed), (base, seed[1:]), (base[1:], choice)]:
        cells = [x * n + y for x, y in zip(a, b)]
        assert chi_square_p(np.bincount(cells, minlength=n * n), np.full(n * n, len(cells) / n**2)) > 1e-4


def test_seed_is_all_there_is():
    request = {"logits": listed(LOGITS), "params": {"seed": 42}, "draws": 64}
    first, again, other = ask_all([request, request, {**request, "params": {"seed": 43}}])
    assert first == again != other
    assert ask(**{**request, "draws": 30})["tokens"] == first["tokens"][:30]


# ---- extremes


def test_extreme_temperatures():
    x = listed(LOGITS)
    best = int(np.argmax(LOGITS))
    for temperature in [0, 1e-9, 1e-5, 1e-4]:
        assert set(ask(logits=x, params={"temperature": temperature}, draws=50)["tokens"]) == {best}
    tokens = ask(logits=x, params={"temperature": 100, "seed": 1}, draws=DRAWS)["tokens"]
    _, p = kept_tokens(LOGITS, {"temperature": 100})
    assert chi_square_p(np.bincount(tokens, minlength=len(x)), p * DRAWS) > 1e-4
    refused = ask(logits=x, params={"temperature": 999999}, draws=1)
    assert (refused["error"], refused["param"]) == ("invalid_value", "temperature")


@pytest.mark.parametrize("params", [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 1.0}, {"typical_p": 0.2},
                                    {"temperature": 0}])  # fmt: skip
def test_extreme_rows(params):
    def draws(x):
        answer = ask(logits=x, params={**params, "seed": 9}, draws=40)
        assert "error" not in answer, answer
        return set(answer["tokens"])

    assert draws([-5.0]) == {0}
    assert draws(["-inf"] * 2000 + [-3e38] + ["-inf"] * 10) == {2000}
    assert draws([3.4e38, -3.4e38, 0.0]) == {0}
    assert draws([1e-45, -1e-45, 0.0, -0.0]) <= {0, 1, 2, 3}
    assert draws([-1e30] * 1500) <= set(range(1500))


def test_penalties_stay_finite():
    huge = {"repetition_penalty": 0.01, "seed": 3}
    assert ask(logits=[0.0, 3.4e38, 1.0], params=huge, prompt=[1], draws=9)["tokens"] == [1] * 9
    assert set(ask(logits=[0.0, 3.4e38, 3.4e38], params=huge, prompt=[1, 2], draws=40)["tokens"]) == {1, 2}


def test_greedy_ties_go_to_the_lower_id():
    for n in (2, 40, 1024, 3000):
        x = np.zeros(n, np.float32)
        x[[n // 2, n - 1]] = 5
        assert ask(logits=listed(x), params={"temperature": 0}, draws=1)["tokens"] == [n // 2]
    assert ask(logits=[-0.0, 0.0], params={"temperature": 0}, draws=1)["tokens"] == [0]
    assert ask(logits=[1, 3, 3, 3], params={"top_k": 2}, draws=50)["tokens"].count(3) == 0


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_numeric_faults_are_errors(bad):
    for n, at in [(1, 0), (50, 49), (3000, 1024), (3000, 2999)]:
        x = [1.0] * n
        x[at] = bad
        for request in ({"draws": 1}, {"score": 0}, {"draws": 1, "params": {"temperature": 0}},
                        {"draws": 1, "params": {"logit_bias": [[at, -100]]}}):  # fmt: skip
            answer = ask(logits=x, **request)
            assert answer["error"] == "numeric_error" and f"token {at} " in answer["message"]
    assert ask(logits=["-inf"] * 5, draws=1)["error"] == "numeric_error"
    assert ask(logits=[1, 2], allowed=[], draws=1)["error"] == "numeric_error"


# ---- log-probabilities


def test_logprobs_equal_log_softmax():
    r = random.Random(5)
    for _ in range(120):
        case = random_case(r)
        x, n_top = case["logits"], r.choice([0, 1, 5, 20])
        token = r.randrange(len(x))
        answer = ask(logits=listed(x), score=token, params={"top_logprobs": n_top, **case["params"]})
        with np.errstate(invalid="ignore"):
            wide = x.astype(np.float64) - float(x.max())
            exact = np.maximum(wide - np.log(np.exp(wide).sum()), -9999)
        ids = np.lexsort((np.arange(len(x)), -x))[:n_top]
        assert [entry[0] for entry in answer["top"]] == list(ids[np.isfinite(x[ids])])
        got = np.array([answer["chosen"]] + [entry[1] for entry in answer["top"]])
        want = np.append(exact[token], [exact[entry[0]] for entry in answer["top"]])
        assert np.all(np.abs(got - want) <= 3e-7 + np.abs(want) * 1e-7), (got, want)


def test_logprobs_have_canonical_bits():
    """Values that any build on any CPU must give, whatever the temperature and the filters."""
    x = [math.fmod(i * i * 0.37, 11) for i in range(2500)]
    for params in ({}, {"temperature": 0.1, "top_k": 1}):
        answer = ask(logits=listed(x), score=77, params={"top_logprobs": 3, **params})
        got = [answer["chosen"]] + [entry[1] for entry in answer["top"]]
        assert [float(value).hex() for value in got] == CANONICAL


CANONICAL = ["-0x1.7494500000000p+3"] + ["-0x1.5c5bd40000000p+2"] * 3


# ---- text


def stopped_text(data, stops):
    """The text of all bytes: Python's decoder, cut where the first stop string to be completed began."""
    text = data.decode("utf-8", "replace")
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


def test_text_equals_pythons_decoder():
    r = random.Random(11)
    parts = ["🦙", "👩‍👩‍👧", "歪", "é", "a", "b", "ab", " ", "\n"]
    requests, expected = [], []
    for _ in range(400):
        data = "".join(r.choices(parts, k=r.randrange(1, 12))).encode()
        if r.random() < 0.5:  # damage
            data = bytes(b ^ r.choice([0, 0, 0, 0x40, 0x80]) for b in data)[: r.randrange(1, len(data) + 1)]
        cuts = sorted(r.sample(range(len(data) + 1), min(len(data), r.choice([0, 1, 3, 9]))))
        pieces = [list(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)])]
        stops = ["".join(r.choices(parts, k=r.randrange(1, 4))) for _ in range(r.randrange(3))]
        requests.append({"pieces": pieces, "tokens": list(range(len(pieces))),
                         "params": {"stop": stops, "max_tokens": len(pieces)}})  # fmt: skip
        expected.append(stopped_text(data, stops))
    for request, (text, stopped) in zip(requests, expected):
        for n in range(len(request["tokens"]), 0, -1):  # tokens after the end are refused: push fewer
            answer = ask_cut(request, n)
            if "events" in answer:
                break
        assert "".join(event[0] for event in answer["events"]) == text, request
        assert answer["events"][-1][1] == (FINISH_STOP if stopped else FINISH_LENGTH)


def ask_cut(request, n):
    return ask(**{**request, "tokens": request["tokens"][:n]})


ABC = [[97], [98], [99], list(b"<end>"), list(b"<x>")]


def events(tokens, **request):
    answer = ask(pieces=ABC, tokens=tokens, ends=[3], control=[3], **request)
    return answer.get("events", answer)


def test_end_tokens():
    assert events([0, 3]) == [["a", 0, -1, -1], ["", FINISH_STOP, 3, -1]]
    assert events([0, 3, 1], params={"ignore_eos": True})[-1] == ["b", 0, -1, -1]
    assert events([0, 3], params={"ignore_eos": True, "keep_special": True})[-1] == ["<end>", 0, -1, -1]
    assert events([0, 3, 1])["error"] == "corrupt"
    assert events([0, 1], params={"stop_token_ids": [1]})[-1] == ["", FINISH_STOP, 1, -1]
    kept = {"stop_token_ids": [1], "include_stop_str_in_output": True}
    assert events([0, 1], params=kept)[-1] == ["b", FINISH_STOP, 1, -1]
    assert events([0, 9])["error"] == "corrupt"


def test_stop_strings():
    assert events([0, 1, 2, 0], params={"stop": ["abd", "ca"]}) == [
        ["", 0, -1, -1], ["", 0, -1, -1], ["ab", 0, -1, -1], ["", FINISH_STOP, -1, 1]]  # fmt: skip
    kept = {"stop": ["bc"], "include_stop_str_in_output": True}
    assert events([0, 1, 2], params=kept)[-1] == ["bc", FINISH_STOP, -1, 0]
    # What was held back comes out when the answer ends otherwise.
    assert events([0, 1, 3], params={"stop": ["abc"]})[-1] == ["ab", FINISH_STOP, 3, -1]
    assert events([0, 1], params={"stop": ["abc"], "max_tokens": 2})[-1] == ["ab", FINISH_LENGTH, -1, -1]
    # Not before min_tokens; a stop string completed by the last token is a stop.
    early = events([0, 1, 0, 1], params={"stop": ["ab"], "min_tokens": 3, "max_tokens": 4})
    assert "".join(event[0] for event in early) == "ab" and early[-1] == ["", FINISH_STOP, -1, 0]


def test_space_before_the_first_word():
    def text(tokens, **request):
        answer = ask(pieces=[[], list(b" a"), list(b"b"), list("é".encode())], tokens=tokens, **request)
        return "".join(event[0] for event in answer["events"])

    assert text([0, 1, 1]) == " a a"
    assert text([0, 1, 1], strip_space=True) == "a a"
    assert text([2, 1], strip_space=True) == "b a"
    assert text([3, 1], strip_space=True) == "é a"


def test_lengths():
    assert events([0], params={"max_tokens": 1}) == [["a", FINISH_LENGTH, -1, -1]]
    assert events([0, 1], prompt=[0, 0, 0], n_ctx=5)[-1][1] == FINISH_LENGTH
    assert events([0, 3], params={"max_tokens": 2})[-1][1] == FINISH_STOP
    full = events([0], prompt=[0] * 5, n_ctx=5)
    assert full["error"] == "context_length_exceeded" and "5 tokens" in full["message"]


# ---- parameters


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"temperature": -0.1}, "temperature"), ({"temperature": "nan"}, "temperature"),
        ({"temperature": "inf"}, "temperature"), ({"top_p": -1}, "top_p"), ({"top_p": 1.01}, "top_p"),
        ({"min_p": "nan"}, "min_p"), ({"typical_p": -0.5}, "typical_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"), ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"), ({"logit_bias": [[5, 1]]}, "logit_bias"),
        ({"logit_bias": [[-1, 1]]}, "logit_bias"), ({"logit_bias": [[0, 1e39]]}, "logit_bias"),
        ({"logit_bias": [[0, "nan"]]}, "logit_bias"), ({"logit_bias": [[0, 1]] * 1025}, "logit_bias"),
        ({"stop_token_ids": [5]}, "stop_token_ids"), ({"stop_token_ids": [0] * 2000}, "stop_token_ids"),
        ({"stop": [""]}, "stop"), ({"stop": ["x" * 257]}, "stop"), ({"stop": ["x"] * 17}, "stop"),
        ({"top_logprobs": 21}, "top_logprobs"), ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters_are_named(params, param):
    answer = ask(logits=[0, 1, 2, 3, 4], params=params, draws=1)
    assert (answer["error"], answer["param"]) == ("invalid_value", param)
    assert param in answer["message"]


def test_limits_themselves_are_allowed():
    params = {"logit_bias": [[0, 100]] * 1024, "stop_token_ids": [4] * 128, "stop": ["x" * 256] * 16, "top_logprobs": 20,
              "temperature": 100, "top_k": 2**32 - 1, "repetition_penalty": 0.01}  # fmt: skip
    assert "error" not in ask(logits=[0, 1, 2, 3, 4], params=params, draws=3)
