"""The clients of Python that agents use, unchanged: prints one JSON object of what they met.

Takes the base URL and the API key from OPENAI_BASE_URL and OPENAI_API_KEY. A package that is missing
is named in "missing".
"""

import asyncio
import enum
import importlib.util
import json
import os
import sys
import time

import openai
import pydantic

model = sys.argv[1]
client = openai.OpenAI(max_retries=0)


class City(str, enum.Enum):
    paris = "Paris"
    rome = "Rome"


class Weather(pydantic.BaseModel):
    city: City
    sunny: bool


def has(package):
    return importlib.util.find_spec(package) is not None


def official():
    messages = [{"role": "user", "content": "hello"}]
    parsed = client.chat.completions.parse(model=model, messages=messages, response_format=Weather)
    tool = openai.pydantic_function_tool(Weather, name="weather")
    called = client.chat.completions.create(
        model=model, messages=messages, tools=[tool], tool_choice="required"
    )
    call = called.choices[0].message.tool_calls[0]
    with client.chat.completions.stream(
        model=model, messages=messages, tools=[tool], tool_choice="required"
    ) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    first = client.responses.create(model=model, input="hello", max_output_tokens=8)
    with client.responses.stream(
        model=model, input="hello", previous_response_id=first.id, max_output_tokens=8
    ) as stream:
        kinds = [event.type for event in stream]
    shaped = client.responses.parse(model=model, input="hello", text_format=Weather)
    floats = client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
    packed = client.embeddings.create(model=model, input=["a", "b"])
    scores = client.moderations.create(input="hello").results[0].category_scores
    return {
        "parsed": parsed.choices[0].message.parsed.model_dump(mode="json"),
        "called": Weather.model_validate_json(call.function.arguments).model_dump(mode="json"),
        "streamed": Weather.model_validate_json(streamed.function.arguments).model_dump(mode="json"),
        "chained": client.responses.retrieve(first.id).id == first.id,
        "events": [kinds[0], kinds[-1]],
        "shaped": shaped.output_parsed.model_dump(mode="json"),
        "embedded": [len(packed.data), floats.data[0].embedding == packed.data[0].embedding],
        "completed": client.completions.create(model=model, prompt="a", max_tokens=4).object,
        "moderated": isinstance(scores.self_harm_intent, float),
    }


def batched():
    """Two calls as a batch: how each ended, and the texts of its results."""
    lines = [
        {
            "custom_id": str(at),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "messages": [{"role": "user", "content": "hello"}],
                "max_tokens": 4,
            },
        }
        for at in range(2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file = client.files.create(file=("lines.jsonl", text.encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    until = time.monotonic() + 90
    while batch.status not in ("completed", "failed", "expired") and time.monotonic() < until:
        time.sleep(0.5)
        batch = client.batches.retrieve(batch.id)
    results = client.files.content(batch.output_file_id).text.splitlines()
    return [batch.status, sorted(json.loads(each)["custom_id"] for each in results)]


def structured():
    import instructor

    answers = {}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        patched = instructor.from_openai(client, mode=mode)
        answers[mode.name] = patched.chat.completions.create(
            model=model,
            response_model=Weather,
            messages=[{"role": "user", "content": "hello"}],
            max_retries=1,
        ).model_dump(mode="json")
    return answers


async def agents():
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)
    own = openai.AsyncOpenAI(max_retries=0)
    cities = []

    # After its first call the tool is no longer required: random weights may call it in every turn
    # that offers it, until MaxTurnsExceeded.
    @function_tool(is_enabled=lambda context, agent: not cities)
    def weather(city: City) -> str:
        """The weather of a city."""
        cities.append(city.value)
        return "sunny"

    outputs = {}
    for name, kind in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
        agent = Agent(
            name="helper",
            instructions="Answer.",
            model=kind(model=model, openai_client=own),
            tools=[weather],
            model_settings=ModelSettings(tool_choice="required", max_tokens=200),
            output_type=Weather,
        )
        cities.clear()
        result = await Runner.run(agent, "hello", max_turns=2)
        outputs[name] = result.final_output.model_dump(mode="json")
        outputs[f"{name}_called"] = bool(cities)
        plain = Agent(
            name="teller",
            instructions="Answer.",
            model=kind(model=model, openai_client=own),
            model_settings=ModelSettings(max_tokens=200),
            output_type=Weather,
        )
        streamed = Runner.run_streamed(plain, "hello")
        outputs[f"{name}_events"] = len([event async for event in streamed.stream_events()])
    return outputs


def claude():
    import anthropic

    base_url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
    own = anthropic.Anthropic(
        base_url=base_url, api_key=os.environ["OPENAI_API_KEY"], max_retries=0
    )
    asked = {
        "model": model,
        "max_tokens": 200,
        "messages": [{"role": "user", "content": "hello"}],
    }
    tool = {"name": "weather", "input_schema": Weather.model_json_schema()}
    called = own.messages.create(**asked, tools=[tool], tool_choice={"type": "any"})
    used = next(block for block in called.content if block.type == "tool_use")
    with own.messages.stream(**{**asked, "max_tokens": 8}) as stream:
        final = stream.get_final_message()
    counted = own.messages.count_tokens(model=model, messages=asked["messages"])
    return {
        "called": Weather.model_validate(used.input).model_dump(mode="json"),
        "streamed": final.usage.output_tokens,
        "counted": counted.input_tokens,
    }


met = {"missing": [], "openai": {**official(), "batched": batched()}}
for package, name, run in (
    ("instructor", "instructor", structured),
    ("agents", "openai-agents", lambda: asyncio.run(agents())),
    ("anthropic", "anthropic", claude),
):
    if has(package):
        met[name] = run()
    else:
        met["missing"].append(name)
print(json.dumps(met))
