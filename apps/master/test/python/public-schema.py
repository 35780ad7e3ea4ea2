"""Compares replies and stream events with the types that OpenAI generates from its public schema.

Prints one JSON object: how many were compared, and the faults. Takes the base URL and the API key
from OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import json
import sys
import typing

import openai
import pydantic
from openai.types import responses
from openai.types.chat import ChatCompletion, ChatCompletionChunk

model = sys.argv[1]
client = openai.OpenAI(max_retries=0)
schema = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}
tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
flat = {"type": "function", "name": "weather", "parameters": schema, "strict": True}
named = {"type": "function", "function": {"name": "weather"}}
format_of = {"name": "answer", "schema": schema}

chats = [
    {},
    {"n": 3},
    {"logprobs": True, "top_logprobs": 3},
    {"stop": ["a", "e"]},
    {"max_tokens": 1},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": format_of}},
    {"tools": [tool]},
    {"tools": [tool], "tool_choice": "required"},
    {"tools": [tool], "tool_choice": named, "parallel_tool_calls": False},
    {"tools": [tool], "tool_choice": "required", "n": 2, "temperature": 1.5},
    {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "é"}]},
]
answers = [
    {},
    {"instructions": "Be brief.", "max_output_tokens": 16},
    {"tools": [flat], "tool_choice": "required"},
    {"text": {"format": {"type": "json_schema", **format_of}}},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
]
kinds = {
    typing.get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in typing.get_args(typing.get_args(responses.ResponseStreamEvent)[0])
}
counts = {"chat_streams": 0, "chat_events": 0, "response_events": 0, "replies": 0}
faults = []


def compare(kind, text, where):
    try:
        kind.model_validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        faults.append(f"{where}: {first['loc']} {first['msg']}")


def data_of(reply):
    return [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]


def chat(members):
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, **members}
    asked = {"model": model, "seed": 7, **asked}
    raw = client.chat.completions.with_raw_response.create(**asked)
    compare(ChatCompletion, raw.text, f"chat {members}")
    counts["replies"] += 1
    for has_usage in (False, True):
        options = {"include_usage": has_usage}
        create = client.chat.completions.with_streaming_response.create
        with create(**asked, stream=True, stream_options=options) as reply:
            *events, last = data_of(reply)
        for event in events:
            compare(ChatCompletionChunk, event, f"chat stream {members}")
        counts["chat_streams"] += 1
        counts["chat_events"] += len(events)
        if last != "[DONE]":
            faults.append(f"chat stream {members}: ends with {last}")


def respond(members):
    asked = {"model": model, "input": "hello", "max_output_tokens": 40, **members}
    raw = client.responses.with_raw_response.create(**asked)
    compare(responses.Response, raw.text, f"response {members}")
    counts["replies"] += 1
    with client.responses.with_streaming_response.create(**asked, stream=True) as reply:
        events = data_of(reply)
    for event in events:
        compare(kinds[json.loads(event)["type"]], event, f"response stream {members}")
    counts["response_events"] += len(events)


for members in chats:
    chat(members)
for members in answers:
    respond(members)
print(json.dumps({**counts, "faults": faults}))
