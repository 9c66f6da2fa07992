"""Answers of the whole pipeline with the default model: what is in them, and that each parameter does what it says. Greedy
choices and filters are checked against the log-probabilities that come with them: these are the model's own, before any
parameter."""

import math

import pytest

from api import bits, join, together, usage, user, whole_of
from pipeline import pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
PARIS_IDS = [504, 3575, 282, 4649, 314, 7042, 30, 2]
STORY = "Once upon a time there was a little"


def france(pipeline, **more):
    answer = pipeline.chat(FRANCE, **{"temperature": 0, "return_token_ids": True, **more})
    return whole_of(answer)[0], answer


# ---- the known answer

def test_the_known_answer(pipeline):
    whole, answer = france(pipeline)
    assert (whole.text, whole.ids, whole.finish) == (PARIS, PARIS_IDS, "stop")
    assert answer["usage"] == usage(37, 8)
    assert len(answer["prompt_token_ids"]) == 37
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["system_fingerprint"].endswith("_a16-v1")


def test_the_known_answer_as_a_stream(pipeline):
    with pipeline.stream(CHAT, messages=user(FRANCE), temperature=0, return_token_ids=True,
                         stream_options={"include_usage": True}) as stream:
        events = list(stream)
    last = events.pop()
    assert last["choices"] == [] and last["usage"] == usage(37, 8)
    assert all(event["usage"] is None for event in events)
    assert join(events)[0] == france(pipeline)[0]
    # The role, one for every token, the finish; the id line counts them.
    assert len(events) == 10 and len({event["id"] for event in events}) == 1
    assert [int(name.split(".")[3], 16) for name in stream.ids] == list(range(1, 11))


def test_no_usage_unless_asked_for(pipeline):
    for event in pipeline.events(CHAT, messages=user(FRANCE), max_tokens=2):
        assert "usage" not in event and event["choices"]


MIXED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1, "max_tokens": 24, "seed": 11}


@pytest.mark.parametrize("path, more", [
    (CHAT, {}), (CHAT, {"n": 3}), (CHAT, {"logprobs": True, "top_logprobs": 3}), (CHAT, {"stop": ["the", "\n"]}),
    (COMPLETIONS, {}), (COMPLETIONS, {"n": 2, "logprobs": 2}), (COMPLETIONS, {"echo": True, "logprobs": 1}),
    (COMPLETIONS, {"echo": True, "stop": "e "}), (COMPLETIONS, {"ignore_eos": True, "skip_special_tokens": False})])
def test_a_stream_is_the_answer_in_pieces(pipeline, path, more):
    body = {**MIXED, **more, "return_token_ids": True}
    body.update({"messages": user("Tell me a story.")} if path == CHAT else {"prompt": STORY})
    answer = pipeline.post(path, **body)
    events = pipeline.events(path, **body, stream_options={"include_usage": True})
    assert events.pop()["usage"] == answer["usage"]
    assert join(events) == whole_of(answer)


def test_the_second_turn_takes_its_beginning_from_the_cache(pipeline):
    turns = user("A word of your own: " + "the sea is deep and old ships sleep under it " * 8)
    first = pipeline.post(CHAT, messages=turns, temperature=0, max_tokens=24)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    again = pipeline.post(CHAT, messages=turns, temperature=0, max_tokens=24)
    assert again["choices"] == first["choices"]
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (again["usage"]["prompt_tokens"] - 1) // 64 * 64 > 0
    turns += [first["choices"][0]["message"], *user("And then?")]
    last = pipeline.events(CHAT, messages=turns, max_tokens=2, stream_options={"include_usage": True})[-1]
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] >= cached


# ---- how an answer ends

@pytest.mark.parametrize("stop, text, n", [
    ("Paris", "The capital of France is ", 6), ("ance is Par", "The capital of Fr", 6), ([".", " is"], "The capital of France", 5),
    (["is Paris", "France is"], "The capital of ", 5), ("T", "", 1), ("France was", PARIS, 8), ("Paris.!", PARIS, 8),
    (PARIS, "", 7), ([], PARIS, 8)])
def test_stop_strings(pipeline, stop, text, n):
    whole, answer = france(pipeline, stop=stop, logprobs=True)
    assert (whole.text, whole.finish, whole.ids) == (text, "stop", PARIS_IDS[:n])
    assert answer["usage"]["completion_tokens"] == n == len(whole.logprobs)
    events = pipeline.events(CHAT, messages=user(FRANCE), temperature=0, stop=stop)
    assert len(events) == n + 2 and join(events)[0].text == text


def test_held_back_text_is_released_with_the_token_that_breaks_it(pipeline):
    events = pipeline.events(CHAT, messages=user(FRANCE), temperature=0, stop=" of France was")
    assert [event["choices"][0]["delta"].get("content") for event in events] == [
        "", "The", " capital", "", "", " of France is", " Paris", ".", "", None]


def test_a_stop_string_may_be_kept(pipeline):
    whole, _ = france(pipeline, stop=["France is"], include_stop_str_in_output=True)
    assert (whole.text, whole.finish) == ("The capital of France is", "stop")


def test_stop_tokens(pipeline):
    whole, _ = france(pipeline, stop_token_ids=[7042, 3])
    assert (whole.text, whole.ids, whole.finish) == ("The capital of France is", PARIS_IDS[:6], "stop")
    whole, _ = france(pipeline, stop_token_ids=[7042], include_stop_str_in_output=True)
    assert whole.text == "The capital of France is Paris"


def test_ends_can_be_ignored_and_put_off(pipeline):
    whole, _ = france(pipeline, ignore_eos=True, max_tokens=20)
    assert whole.ids[:8] == PARIS_IDS and len(whole.ids) == 20 and whole.finish == "length"
    whole, _ = france(pipeline, min_tokens=12, max_tokens=40)
    assert whole.ids[:7] == PARIS_IDS[:7] and 2 not in whole.ids[:12] and len(whole.ids) >= 12
    whole, _ = france(pipeline, stop=["capital"], min_tokens=4)
    assert whole.text == PARIS


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_length(pipeline, name):
    for n in (1, 7, 8):
        whole, answer = france(pipeline, **{name: n})
        assert whole.ids == PARIS_IDS[:n] and whole.finish == ("stop" if n == 8 else "length")
        assert answer["usage"]["completion_tokens"] == n


# ---- log-probabilities

def test_chat_logprobs(pipeline):
    whole, _ = france(pipeline, logprobs=True, top_logprobs=20)
    assert "".join(entry["token"] for entry in whole.logprobs[:7]) == PARIS
    for entry in whole.logprobs:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 20 and values == sorted(values, reverse=True)
        assert entry["top_logprobs"][0]["token"] == entry["token"] and values[0] == entry["logprob"]
        assert 0.5 < sum(map(math.exp, values)) < 1 + 1e-5


def test_logprobs_without_alternatives(pipeline):
    whole, _ = france(pipeline, logprobs=True)
    assert len(whole.logprobs) == 8 and all(entry["top_logprobs"] == [] for entry in whole.logprobs)
    choice, = pipeline.complete(STORY, temperature=0, max_tokens=4, logprobs=0)["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == 4
    assert france(pipeline)[1]["choices"][0]["logprobs"] is None


def test_parameters_do_not_change_the_logprobs(pipeline):
    plain, _ = france(pipeline, logprobs=True, top_logprobs=5, max_tokens=1)
    for more in ({"temperature": 1.7, "top_k": 1}, {"frequency_penalty": 1}, {"logit_bias": {"5": -3}}, {"top_p": 0}):
        assert france(pipeline, logprobs=True, top_logprobs=5, max_tokens=1, **more)[0] == plain


def test_completion_logprobs(pipeline):
    answer = pipeline.complete(STORY, temperature=0, max_tokens=12, logprobs=4, return_token_ids=True)
    choice, = answer["choices"]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"] and len(logprobs["tokens"]) == 12
    for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
        assert len(top) == 4 and top[token] == value == max(top.values())
    width = 0
    for offset, token in zip(logprobs["text_offset"], logprobs["tokens"]):
        assert offset == width
        width += len(token)


def test_echo_scores_the_prompt(pipeline):
    ids = pipeline.post("/tokenize", prompt=STORY)["tokens"]
    for prompt in (STORY, ids):
        for n in (0, 1, 5):
            answer = pipeline.complete(prompt, echo=True, logprobs=2, max_tokens=n, temperature=0, return_token_ids=True)
            choice, = answer["choices"]
            logprobs = choice["logprobs"]
            assert choice["text"].startswith(STORY) and (n > 0 or choice["text"] == STORY)
            assert choice["finish_reason"] == "length" and len(choice["token_ids"]) == n
            assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["text_offset"]) == len(ids) + n
            assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
            assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
            assert answer["usage"] == usage(len(ids), n)


def test_echo_without_logprobs(pipeline):
    whole, = whole_of(pipeline.complete(STORY, echo=True, max_tokens=3, temperature=0)).values()
    alone, = whole_of(pipeline.complete(STORY, max_tokens=3, temperature=0)).values()
    assert whole.text == STORY + alone.text
    assert whole_of(pipeline.complete(STORY, echo=True, max_tokens=0))[0].text == STORY


def test_a_generated_token_has_the_bits_of_the_same_token_in_a_prompt(pipeline):
    """Decoding one by one and reading a prompt in chunks are the same arithmetic."""
    answer = pipeline.complete(STORY, max_tokens=40, logprobs=5, return_token_ids=True, seed=3, ignore_eos=True)
    choice, = answer["choices"]
    ids = choice["prompt_token_ids"]
    scored, = pipeline.complete(ids + choice["token_ids"], max_tokens=0, echo=True, logprobs=5)["choices"]
    assert scored["logprobs"]["token_logprobs"][len(ids):] == choice["logprobs"]["token_logprobs"]
    assert scored["logprobs"]["top_logprobs"][len(ids):] == choice["logprobs"]["top_logprobs"]


# ---- sampling

def test_seeds(pipeline):
    def ask(**more):
        return [whole.text for whole in whole_of(pipeline.complete(STORY, max_tokens=12, **more)).values()]
    four = ask(seed=42, n=4)
    assert len(set(four)) == 4 and ask(seed=42, n=4) == four
    # A choice doesn't depend on how many there are.
    assert ask(seed=42) == four[:1] and ask(seed=42, n=2) == four[:2]
    assert ask(seed=43) != four[:1] and ask() != ask()
    assert ask(seed=-1) == ask(seed=-1) and ask(seed=2**63 - 1) != ask(seed=-2**63)


def test_keys():
    """The same Idempotency-Key is the same request: the same bytes, once computed. Its seed comes from the key. In a pipeline of
    its own, as it keeps the answers."""
    with pipeline_with() as pipeline:
        def ask(key, **more):
            body = {"prompt": STORY, "max_tokens": 12, "logprobs": 2, **more}
            return pipeline.request("POST", COMPLETIONS, body, {"Idempotency-Key": key})
        first, again, other = ask("a"), ask("a"), ask("b")
        assert first.status == 200 and again.data == first.data and bits(other.json) != bits(first.json)
        assert ask("a", max_tokens=11).error[:2] == (422, "idempotency_key_reused")
        assert pipeline.metric("lockstep_sampler_turns_total" + label(pipeline, "sampler")) == 24


def label(pipeline, role):
    epoch = max(process["epoch"] for process in pipeline.status()["processes"] if process["role"] == role)  # of those still listed
    return f'{{instance="0",epoch="{epoch}"}}'


@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1e-9}, {"top_k": 1}, {"top_p": 0}, {"min_p": 1},
                                  {"temperature": 2, "top_p": 1e-6}, {"temperature": -0.0}])
def test_ways_to_the_likeliest_token(pipeline, more):
    assert whole_of(pipeline.chat(FRANCE, seed=5, **more))[0].text == PARIS


@pytest.mark.parametrize("more", [{"top_k": 2147483647}, {"top_k": 0}, {"top_k": -1}, {"top_p": 1}, {"min_p": 0}, {"typical_p": 1},
                                  {"presence_penalty": 0.0}, {"repetition_penalty": 1}, {"logit_bias": {}}, {"n": None}])
def test_values_that_change_nothing(pipeline, more):
    body = {"max_tokens": 16, "seed": 1, "logprobs": 1}
    assert bits(pipeline.complete(STORY, **body, **more)) == bits(pipeline.complete(STORY, **body))


def steps(choice):
    """(chosen, {token: logprob}) of each token."""
    return [(entry["token"], {top["token"]: top["logprob"] for top in entry["top_logprobs"]})
            for entry in choice["logprobs"]["content"]]


def ask_twenty(pipeline, **more):
    return pipeline.chat("Write about the sea.", logprobs=True, top_logprobs=20, max_tokens=25, ignore_eos=True,
                         **more)["choices"]


@pytest.mark.parametrize("more", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.3}])
def test_filters_allow_what_they_say(pipeline, more):
    others = 0
    for choice in ask_twenty(pipeline, seed=9, n=4, **more):
        for token, top in steps(choice):
            order = sorted(top, key=top.get, reverse=True)
            allowed, mass = order[:more.get("top_k", 20)], 0.0
            if "top_p" in more:
                before = [sum(math.exp(top[name]) for name in order[:i]) for i in range(20)]
                allowed = [name for name, mass in zip(order, before) if mass < more["top_p"] + 1e-6]
                if before[-1] < more["top_p"]:
                    continue
            if "min_p" in more:
                allowed = [name for name in order if top[name] >= top[order[0]] + math.log(more["min_p"]) - 1e-5]
            assert token in allowed
            others += token != order[0]
    assert others > 3, "the filter left nothing but the likeliest token"


@pytest.mark.parametrize("more", [{"frequency_penalty": 1.5}, {"presence_penalty": 2}, {"presence_penalty": -2},
                                  {"logit_bias": {"260": 4, "28": -5}}])
def test_penalties_and_biases_move_the_argmax(pipeline, more):
    """260 is " the", 28 is ","."""
    biases = {" the": 4, ",": -5} if "logit_bias" in more else {}
    choice, = ask_twenty(pipeline, temperature=0, **more)
    seen, moved = [], 0
    for token, top in steps(choice):
        score = {name: value + biases.get(name, 0) - more.get("frequency_penalty", 0) * seen.count(name)
                 - more.get("presence_penalty", 0) * (name in seen) for name, value in top.items()}
        assert score[token] >= max(score.values()) - 1e-4, (seen, token)
        moved += top[token] < max(top.values())
        seen.append(token)
    assert moved > 0


def test_biases_force_and_ban(pipeline):
    whole, _ = france(pipeline, logit_bias={"7042": 100}, max_tokens=3)
    assert whole.ids == [7042] * 3
    whole, _ = france(pipeline, logit_bias={str(PARIS_IDS[0]): -100}, max_tokens=3)
    assert whole.ids[0] != PARIS_IDS[0]


def test_repetition_penalty(pipeline):
    body = {"prompt": "1 1 1 1 1 1", "temperature": 0, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
    plain, = whole_of(pipeline.post(COMPLETIONS, **body)).values()
    other, = whole_of(pipeline.post(COMPLETIONS, **body, repetition_penalty=1.5)).values()
    assert len(set(plain.ids)) < 10 <= len(set(other.ids))


def test_draws_follow_the_distribution(pipeline):
    """320 first tokens of fixed seeds against their probabilities at temperature 0.7, within four standard deviations."""
    body = {"prompt": "The colour of the sky is", "max_tokens": 1}
    top = pipeline.post(COMPLETIONS, **body, logprobs=20, temperature=0)["choices"][0]["logprobs"]["top_logprobs"][0]
    answers = together(4, lambda seed: pipeline.post(COMPLETIONS, **body, temperature=0.7, seed=seed, n=16, top_k=20), range(20))
    draws = [choice["text"] for answer in answers for choice in answer["choices"]]
    weights = {token: math.exp(value / 0.7) for token, value in top.items()}
    total = sum(weights.values())
    for token, weight in weights.items():
        p = weight / total
        assert abs(draws.count(token) - 320 * p) <= 4 * math.sqrt(320 * p * (1 - p)) + 1, (token, p)
    assert set(draws) <= set(top) and len(set(draws)) > 3


# ---- several prompts

def test_arrays_of_prompts(pipeline):
    prompts = ["The sea is", [504, 3575, 282], STORY, "é🦙"]
    answer = pipeline.complete(prompts, n=2, max_tokens=8, seed=4, logprobs=2)
    wholes = whole_of(answer)
    assert sorted(wholes) == list(range(8))
    for i, prompt in enumerate(prompts):
        alone = whole_of(pipeline.complete(prompt, n=2, max_tokens=8, seed=4, logprobs=2))
        assert [wholes[2 * i], wholes[2 * i + 1]] == [alone[0], alone[1]]
    events = pipeline.events(COMPLETIONS, prompt=prompts, n=2, max_tokens=8, seed=4, logprobs=2)
    assert join(events) == wholes


def test_text_and_its_ids_are_the_same_prompt(pipeline):
    ids = pipeline.post("/tokenize", prompt=STORY)["tokens"]
    for prompt in (STORY, ids, [ids], [float(id) for id in ids]):
        assert whole_of(pipeline.complete(prompt, max_tokens=6, temperature=0))[0] == \
            whole_of(pipeline.complete(STORY, max_tokens=6, temperature=0))[0]


def test_token_ids_are_where_vllm_has_them(pipeline):
    """prompt_token_ids: of a completion in each choice, of a chat beside the choices; in a stream with the first event."""
    ids = pipeline.post("/tokenize", messages=user(FRANCE))["tokens"]
    chat = pipeline.chat(FRANCE, max_tokens=2, return_token_ids=True)
    assert chat["prompt_token_ids"] == ids and len(chat["choices"][0]["token_ids"]) == 2
    first, *others = pipeline.events(CHAT, messages=user(FRANCE), max_tokens=2, return_token_ids=True)
    assert first["prompt_token_ids"] == ids and not any("prompt_token_ids" in event for event in others)
    choices = pipeline.complete(["a b", "c d e"], max_tokens=2, return_token_ids=True)["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [
        pipeline.post("/tokenize", prompt=text)["tokens"] for text in ("a b", "c d e")]
    first, *others = pipeline.events(COMPLETIONS, prompt="a b", max_tokens=2, return_token_ids=True)
    assert first["choices"][0]["prompt_token_ids"] == choices[0]["prompt_token_ids"]
    assert not any("prompt_token_ids" in event["choices"][0] for event in others)
    for path, body in ((CHAT, {"messages": user(FRANCE)}), (COMPLETIONS, {"prompt": "a"})):
        assert "token_ids" not in str(pipeline.post(path, **body, max_tokens=2))


# ---- pages

def test_models(pipeline):
    model, = pipeline.get("/v1/models").json["data"]
    assert model["id"] == "SmolLM2-135M-Instruct.Q4_1" and model["max_model_len"] == 8192 and model["object"] == "model"
    assert pipeline.get("/v1/models/" + model["id"]).json == model
    assert whole_of(pipeline.chat(FRANCE, model=model["id"], temperature=0))[0].text == PARIS


def test_metrics_count(pipeline):
    names = ("lockstep_prompt_tokens_total", "lockstep_generated_tokens_total", "lockstep_time_to_first_token_seconds_count",
             "lockstep_time_between_tokens_seconds_count", 'lockstep_results_total{code="ok"}',
             'lockstep_requests_total{endpoint="chat_completions"}')
    before = [pipeline.metric(name) for name in names]
    france(pipeline)
    assert [pipeline.metric(name) - value for name, value in zip(names, before)] == [37, 8, 1, 7, 1, 1]
