"""LangChain in Python, as docs/clients.md sets it up. (In JavaScript: test_clients_js.py.)"""

import langchain_openai
import openai
import pydantic
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

from clients import PARIS, QUESTION


class City(pydantic.BaseModel):
    """A city."""
    name: str = pydantic.Field(max_length=12)
    country: str = pydantic.Field(max_length=12)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@pytest.fixture
def to_here(pipeline):
    model = pipeline.get("/v1/models").json["data"][0]["id"]
    return {"model": model, "base_url": pipeline.url + "/v1", "api_key": "none", "temperature": 0, "max_retries": 0, "timeout": 120}


@pytest.fixture
def chat(to_here):
    def chat(**more):
        return langchain_openai.ChatOpenAI(**{**to_here, **more})
    return chat


def test_chat(chat):
    answer = chat().invoke(QUESTION)
    assert answer.content == PARIS and answer.response_metadata["finish_reason"] == "stop"
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (37, 8)
    assert [answer.content for answer in chat().batch([QUESTION] * 4)] == [PARIS] * 4


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
def test_stream(chat, responses):
    more = {"use_responses_api": True, "store": False} if responses else {"stream_usage": True}
    parts = list(chat(**more).stream(QUESTION))
    assert "".join(part.text for part in parts) == PARIS and len(parts) >= 8
    assert [part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata] == [8]


def test_logprobs(chat):
    content = chat(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content[:7]) == PARIS and all(len(entry["top_logprobs"]) == 2 for entry in content)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat, method):
    city = chat(max_tokens=200).with_structured_output(City, method=method).invoke("Name a city in France.")
    assert isinstance(city, City)


def test_tools(chat):
    asked = chat(max_tokens=100).bind_tools([add], tool_choice="add").invoke("What is 17 and 25?")
    call, = asked.tool_calls
    assert call["name"] == "add" and set(call["args"]) == {"a", "b"} and isinstance(add.invoke(call["args"]), int)
    # What the model said, and the tool's result, go back as LangChain writes them.
    history = [("user", "What is 17 and 25?"), AIMessage("", tool_calls=[call]), ToolMessage("42", tool_call_id=call["id"])]
    assert chat(max_tokens=20).bind_tools([add]).invoke(history).response_metadata["finish_reason"] in ("stop", "length", "tool_calls")


def test_completions_and_embeddings(to_here):
    words = langchain_openai.OpenAI(max_tokens=4, **to_here).invoke("The capital of France is")
    assert words.startswith(" Paris")
    # Without check_embedding_ctx_length=False LangChain sends ids of another model's vocabulary.
    options = {key: to_here[key] for key in ("model", "base_url", "api_key")}
    vectors = langchain_openai.OpenAIEmbeddings(**options, check_embedding_ctx_length=False).embed_documents(["a dog", "a cat"])
    assert [len(vector) for vector in vectors] == [576, 576] and vectors[0] != vectors[1]


def test_errors(chat):
    """LangChain knows a full context by the message's words, and agents then shorten what they send."""
    with pytest.raises(ContextOverflowError):
        chat().invoke("x " * 9000)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat(temperature=5).invoke("x")
