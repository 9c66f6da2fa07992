#!/usr/bin/env python3
"""Writes openapi.json, the API as a machine reads it: docs/openapi.py >docs/openapi.json"""

import json

INT = {"type": "integer"}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
ANY = {}
BIG = 2 ** 31 - 1


def real(low, high, default):
    return {"type": "number", "minimum": low, "maximum": high, "default": default}


def whole(low, high=BIG, **more):
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def array(items, low=0, high=None):
    return {"type": "array", "items": items, "minItems": low, **({"maxItems": high} if high else {})}


def one_of(*schemas):
    return {"anyOf": list(schemas)}


def record(required=(), **members):
    return {"type": "object", "properties": members, "required": list(required)}


IDS = array(whole(0))
STOP = {"type": "string", "minLength": 1, "maxLength": 64}
PART = record(["type", "text"], type={"enum": ["text"]}, text=TEXT)
ROLE = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
MESSAGE = record(["role", "content"], role=ROLE, content=one_of(TEXT, array(PART)), name=TEXT)
MESSAGES = array(MESSAGE, 1, 4096)

GENERATE = {
    "temperature": real(0, 2, 1), "top_p": real(0, 1, 1), "min_p": real(0, 1, 0), "typical_p": real(0, 1, 1),
    "top_k": whole(-1, default=0), "repetition_penalty": real(0.01, 100, 1), "presence_penalty": real(-2, 2, 0),
    "frequency_penalty": real(-2, 2, 0), "logit_bias": {"type": "object", "maxProperties": 1024, "additionalProperties": real(-100, 100, 0)},
    "seed": whole(-2 ** 63, 2 ** 63 - 1), "n": whole(1, 65535, default=1), "max_completion_tokens": whole(1), "min_tokens": whole(0, default=0),
    "stop": one_of(STOP, array(STOP, 0, 16)), "stop_token_ids": array(whole(0), 0, 128), "ignore_eos": FLAG, "speculate": FLAG,
    "include_stop_str_in_output": FLAG, "stream": FLAG, "stream_options": record(include_usage=FLAG), "return_token_ids": FLAG,
    "skip_special_tokens": FLAG, "response_format": record(["type"], type={"enum": ["text", "json_object", "json_schema"]}),
    "structured_outputs": record(), "guided_json": record(), "guided_regex": TEXT, "guided_choice": array(TEXT, 1),
    "guided_grammar": TEXT, "json_schema": record(), "grammar": TEXT,
}
EVERY = {"model": TEXT, "user": {"type": "string", "maxLength": 512}}
CONVERSE = {"messages": MESSAGES, "add_generation_prompt": FLAG, "tools": array(record()), "chat_template": TEXT,
            "chat_template_kwargs": record()}
IGNORED = {name: ANY for name in ("metadata", "prompt_cache_key", "prompt_cache_retention",
                                  "safety_identifier", "service_tier", "store")}
CHAT = record(["messages"], **EVERY, **CONVERSE, **GENERATE, **IGNORED, max_tokens=whole(1), logprobs=FLAG,
              top_logprobs=whole(0, 20), parallel_tool_calls=FLAG,
              tool_choice=one_of({"enum": ["auto", "none", "required"]}, record(["type", "function"], type={"enum": ["function"]}, function=record(["name"], name=TEXT))))
COMPLETIONS = record(["prompt"], **EVERY, **GENERATE, **IGNORED, prompt=one_of(TEXT, IDS, array(one_of(TEXT, IDS))),
                     max_tokens=whole(0), logprobs=whole(0, 20), echo=FLAG, best_of=whole(1, 65535), add_special_tokens=FLAG)
TOKENIZE = record(**EVERY, **CONVERSE, prompt=TEXT, add_special_tokens=FLAG)
DETOKENIZE = record(["tokens"], **EVERY, tokens=IDS)
TEMPLATE = record(["messages"], **EVERY, **CONVERSE)
CLAUDE = record(["max_tokens", "messages"], model=TEXT, max_tokens=whole(1), system=one_of(TEXT, array(PART)),
                messages=array(record(["role", "content"], role={"enum": ["user", "assistant"]}, content=one_of(TEXT, array(PART))), 1),
                stop_sequences=array(STOP, 0, 16), stream=FLAG, temperature=real(0, 2, 1), top_p=real(0, 1, 1), top_k=whole(-1),
                metadata=record(), thinking=record(type={"enum": ["disabled"]}))
OPTIONS = record(temperature=real(0, 2, 1), top_p=real(0, 1, 1), min_p=real(0, 1, 0), typical_p=real(0, 1, 1), top_k=whole(-1),
                 seed=whole(-2 ** 63, 2 ** 63 - 1), stop=one_of(STOP, array(STOP, 0, 16)), repeat_penalty=real(0.01, 100, 1),
                 presence_penalty=real(-2, 2, 0), frequency_penalty=real(-2, 2, 0), num_predict=whole(-2))
LLAMA_CHAT = record(["model", "messages"], model=TEXT, stream=FLAG, options=OPTIONS, messages=array(record(["role", "content"], role=ROLE, content=TEXT), 1))
LLAMA_GENERATE = record(["model"], model=TEXT, prompt=TEXT, system=TEXT, raw=FLAG, stream=FLAG, options=OPTIONS)
ITEM = record(["role", "content"], role={"enum": ["user", "assistant", "system", "developer"]},
              content=one_of(TEXT, array(record(["type", "text"], type={"enum": ["input_text", "output_text", "text"]}, text=TEXT))))
RESPONSES = record(["input"], **EVERY, input=one_of(TEXT, array(ITEM, 1)), instructions=TEXT, previous_response_id=TEXT,
                   max_output_tokens=whole(1), temperature=real(0, 2, 1), top_p=real(0, 1, 1), stream=FLAG, store=FLAG, metadata=record())

EMBED = record(["input"], **EVERY, input=one_of({"type": "string", "minLength": 1}, array(whole(0), 1), array(one_of({"type": "string", "minLength": 1}, array(whole(0), 1)), 1, 128)),
               encoding_format={"enum": ["float", "base64"]}, dimensions=whole(1), pooling={"enum": ["mean", "last"]}, add_special_tokens=FLAG)
LLAMA_EMBED = record(["model", "input"], model=TEXT, input=one_of({"type": "string", "minLength": 1}, array({"type": "string", "minLength": 1}, 1, 128)), dimensions=whole(1), truncate=FLAG)

ERROR = record(["error"], error=record(["message", "type", "param", "code"], message=TEXT, type=TEXT))
CLAUDE_ERROR = record(["type", "error"], type={"enum": ["error"]}, error=record(["type", "message"], type=TEXT, message=TEXT))
LLAMA_ERROR = record(["error"], error=TEXT)
USAGE = record(["prompt_tokens", "completion_tokens", "total_tokens"], prompt_tokens=INT, completion_tokens=INT, total_tokens=INT)
ANSWER = record(["id", "object", "created", "model", "choices", "usage", "system_fingerprint"], id=TEXT, object=TEXT, created=INT,
                model=TEXT, system_fingerprint=TEXT, usage=USAGE,
                choices=array(record(["index", "finish_reason"], index=INT, finish_reason={"enum": ["stop", "length", "tool_calls"]}), 1))
EVENTS, LINES, JSON = "text/event-stream", "application/x-ndjson", "application/json"


def operation(summary, answer, error=ERROR, body=None, stream=None, statuses=(400, 404, 409, 410, 413, 415, 422, 429, 500, 503), path_names=(),
              kind=JSON):
    content = {kind: {"schema": answer}}
    if stream:
        content[stream] = {"schema": TEXT}
    refused = {str(status): {"description": "docs/errors.md", "content": {JSON: {"schema": error}}} for status in (401, 403, *statuses)}
    made = {"summary": summary, "responses": {"200": {"description": summary, "content": content}, **refused}}
    if body:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if path_names:
        made["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in path_names]
    return made


def post(*args, **more):
    return {"post": operation(*args, **more)}


def get(*args, **more):
    return {"get": operation(*args, **more)}


COUNT = record(["input_tokens"], input_tokens=INT)
MODEL = record(["id", "object", "created", "owned_by", "max_model_len"], id=TEXT, object={"enum": ["model"]}, created=INT, owned_by=TEXT, max_model_len=INT)
RESPONSE = record(["id", "object", "status", "output", "usage"], id=TEXT, object={"enum": ["response"]}, status=TEXT, output=array(record()))
READY = record(["status"], status=TEXT)
PATHS = {
    "/v1/chat/completions": post("a conversation's next message", ANSWER, body=CHAT, stream=EVENTS),
    "/v1/completions": post("a text's continuation", ANSWER, body=COMPLETIONS, stream=EVENTS),
    "/v1/embeddings": post("vectors of texts", record(["object", "data", "model", "usage"], object={"enum": ["list"]},
                           data=array(record(["object", "index", "embedding"], index=INT), 1)), body=EMBED),
    "/v1/responses": post("OpenAI's responses", RESPONSE, body=RESPONSES, stream=EVENTS),
    "/v1/responses/{id}": {**get("a response that is kept", RESPONSE, path_names=["id"]),
                           "delete": operation("forgets it", record(["id", "object", "deleted"], deleted=FLAG), path_names=["id"])},
    "/v1/messages": post("Anthropic's messages", record(["id", "content", "stop_reason", "usage"]), CLAUDE_ERROR, CLAUDE, EVENTS),
    "/v1/messages/count_tokens": post("tokens of a conversation", COUNT, CLAUDE_ERROR, CLAUDE),
    "/api/chat": post("Ollama's chat", record(["model", "message", "done"]), LLAMA_ERROR, LLAMA_CHAT, LINES),
    "/api/generate": post("Ollama's generate", record(["model", "response", "done"]), LLAMA_ERROR, LLAMA_GENERATE, LINES),
    "/api/embed": post("vectors of texts", record(["model", "embeddings"], model=TEXT, embeddings=array(array({"type": "number"}, 1), 1)), LLAMA_ERROR, LLAMA_EMBED),
    "/api/show": post("a model's details", record(["model_info"]), LLAMA_ERROR, record(["model"], model=TEXT)),
    "/api/tags": get("the models", record(["models"], models=array(record(["name", "model", "size", "digest"]), 1))),
    "/api/ps": get("the models that run", record(["models"], models=array(record(["name", "model"]), 1))),
    "/api/version": get("The Ollama release whose API this is, and Lockstep's version",
                        record(["version", "lockstep"], version=TEXT, lockstep=TEXT)),
    "/tokenize": post("text or a conversation to ids", record(["count", "max_model_len", "tokens"], count=INT, max_model_len=INT, tokens=IDS), body=TOKENIZE),
    "/detokenize": post("ids to text", record(["prompt"], prompt=TEXT), body=DETOKENIZE),
    "/apply-template": post("a conversation to the prompt", record(["prompt"], prompt=TEXT), body=TEMPLATE),
    "/v1/models": get("the model", record(["object", "data"], data=array(MODEL, 1))),
    "/v1/models/{name}": get("the model", MODEL, path_names=["name"]),
    "/v1/streams/{id}": get("the rest of a stream", ANSWER, stream=EVENTS, path_names=["id"]),
    "/v1/requests": get("what runs and waits", record(["object", "data"], data=array(record(["id", "stage", "key"])))),
    "/v1/requests/{id}/cancel": post("ends a request", record(["id", "cancelled"], id=TEXT, cancelled=INT), path_names=["id"]),
    "/status": get("processes, requests, events", record(["ready", "processes", "slots", "requests", "events"])),
    "/live": get("the gateway answers", READY), "/ready": get("every role has a living instance", READY),
    "/health": get("as /ready", READY), "/metrics": get("Prometheus", TEXT, kind="text/plain"),
}
KEYS = {"bearer": {"type": "http", "scheme": "bearer"}, "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}


def document():
    return {"openapi": "3.1.0", "info": {"title": "Lockstep", "version": "1", "description": "docs/api.md says what each member means."},
            "servers": [{"url": "http://127.0.0.1:8080"}], "security": [{}, {"bearer": []}, {"header": []}],
            "components": {"securitySchemes": KEYS}, "paths": PATHS}


if __name__ == "__main__":
    # A line for each path, so that a change shows where it is.
    paths = ",\n".join(f"{json.dumps(path)}: {json.dumps(item)}" for path, item in PATHS.items())
    rest = json.dumps({**document(), "paths": 0}, indent=1)
    print(rest.replace('"paths": 0', '"paths": {\n' + paths + "}"))
