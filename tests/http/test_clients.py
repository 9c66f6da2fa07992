"""Clients as users have them, in Python: openai and litellm. (JavaScript: test_clients_js.py.)"""

import asyncio

import litellm
import openai
import pytest

from api import user
from clients import PARIS, QUESTION, STORY

litellm.telemetry = False
litellm.suppress_debug_info = True


@pytest.fixture
def client(pipeline):
    with openai.OpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def model(client):
    model, = client.models.list()
    return model.id


# ---- openai

def test_openai_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=user(QUESTION), temperature=0)
    assert answer.choices[0].message.content == PARIS and answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (37, 8, 45)
    assert client.models.retrieve(model).id == model


def test_openai_streams(client, model):
    parts = list(client.chat.completions.create(model=model, messages=user(QUESTION), temperature=0, stream=True,
                                                stream_options={"include_usage": True}))
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == PARIS
    assert parts[-1].usage.completion_tokens == 8 and parts[-2].choices[0].finish_reason == "stop"
    with client.chat.completions.stream(model=model, messages=user(QUESTION), temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == PARIS


def test_openai_logprobs(client, model):
    answer = client.chat.completions.create(model=model, messages=user(QUESTION), temperature=0, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in content[:7]) == PARIS
    assert all(entry.logprob == entry.top_logprobs[0].logprob and len(entry.top_logprobs) == 3 for entry in content)


def test_openai_stop_n_seed(client, model):
    answer = client.chat.completions.create(model=model, messages=user(QUESTION), temperature=0, stop=["Paris"])
    assert answer.choices[0].message.content == "The capital of France is "
    answers = [client.chat.completions.create(model=model, messages=user(STORY), n=3, seed=1, max_tokens=12) for _ in range(2)]
    texts = [[choice.message.content for choice in answer.choices] for answer in answers]
    assert texts[0] == texts[1] and len(set(texts[0])) == 3
    assert [choice.index for choice in answers[0].choices] == [0, 1, 2]


def test_openai_completions(client, model):
    answer = client.completions.create(model=model, prompt=["a b", [504, 3575]], max_tokens=2, echo=True, logprobs=2, temperature=0)
    assert [choice.text.startswith(text) for choice, text in zip(answer.choices, ("a b", "The capital"))] == [True, True]
    assert answer.choices[1].logprobs.token_logprobs[0] is None and len(answer.choices[1].logprobs.tokens) == 4
    parts = client.completions.create(model=model, prompt="The capital of France is", max_tokens=5, temperature=0, stream=True)
    whole = client.completions.create(model=model, prompt="The capital of France is", max_tokens=5, temperature=0)
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text


def test_openai_errors(client, model):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=model, messages=user("x"), temperature=5)
    assert (error.value.param, error.value.code, error.value.type) == ("temperature", "invalid_value", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=model, messages=user("x " * 9000), stream=True)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-4o", messages=user("x"))
    assert error.value.code == "model_not_found"


def test_openai_leaves(client, model, pipeline):
    stream = client.chat.completions.create(model=model, messages=user(STORY), stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    pipeline.wait_idle(10)


def test_openai_asynchronous(pipeline, model):
    async def ask():
        async with openai.AsyncOpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            async def one():
                stream = await client.chat.completions.create(model=model, messages=user(QUESTION), temperature=0, stream=True)
                return "".join([part.choices[0].delta.content or "" async for part in stream])
            return await asyncio.gather(*[one() for _ in range(20)])
    assert asyncio.run(ask()) == [PARIS] * 20


# ---- litellm

@pytest.fixture
def ask(pipeline, model):
    """litellm.completion at this pipeline."""
    def ask(function=litellm.completion, **more):
        return function(model="hosted_vllm/" + model, api_base=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120, **more)
    return ask


def test_litellm_chat(ask):
    answer = ask(messages=user(QUESTION), temperature=0)
    assert answer.choices[0].message.content == PARIS and answer.usage.total_tokens == 45


def test_litellm_streams(ask):
    parts = list(ask(messages=user(QUESTION), temperature=0, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == PARIS
    assert parts[-1].choices[0].finish_reason == "stop"


def test_litellm_logprobs_stop_n(ask):
    answer = ask(messages=user(QUESTION), temperature=0, logprobs=True, top_logprobs=2, stop=["."])
    assert answer.choices[0].message.content == PARIS[:-1]
    assert [entry["token"] for entry in answer.choices[0].logprobs["content"]][:2] == ["The", " capital"]
    answer = ask(messages=user(STORY), n=2, seed=1, max_tokens=8)
    assert len({choice.message.content for choice in answer.choices}) == 2


def test_litellm_completions(pipeline, model):
    answer = litellm.text_completion(model="text-completion-openai/" + model, api_base=pipeline.url + "/v1", api_key="none",
                                     prompt="The capital of France is", max_tokens=3, temperature=0)
    assert answer.choices[0].text


def test_litellm_errors(ask):
    with pytest.raises(litellm.ContextWindowExceededError):
        ask(messages=user("x " * 9000))
    with pytest.raises(litellm.BadRequestError) as error:
        ask(messages=user("x"), temperature=5)
    assert "temperature" in str(error.value)
