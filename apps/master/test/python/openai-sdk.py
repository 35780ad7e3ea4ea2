"""The official Python client, unchanged: prints one JSON object of what it met.

Takes the base URL and the API key from OPENAI_BASE_URL and OPENAI_API_KEY, as the client does.
"""

import json
import sys

import openai

model = sys.argv[1]
client = openai.OpenAI(max_retries=0)
hello = {"model": model, "messages": [{"role": "user", "content": "hello"}], "seed": 7}
steered = {**hello, "max_tokens": 12, "logit_bias": {"0": -100, "1": -100, "2": -100, "3": -100}}


def error_of(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return None


def create(**members):
    return client.chat.completions.create(**{**hello, **members})


client.chat.completions.create(**steered)
whole = client.chat.completions.create(**steered)
streamed, usage = "", None
stream = client.chat.completions.create(
    **steered, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    usage = chunk.usage or usage
    for choice in chunk.choices:
        streamed += choice.delta.content or ""

stranger = client.with_options(api_key="wrong")
print(
    json.dumps(
        {
            "text": whole.choices[0].message.content,
            "streamed": streamed,
            "finish": whole.choices[0].finish_reason,
            "usage": whole.usage.total_tokens,
            "streamed_usage": usage.total_tokens,
            "models": [listed.id for listed in client.models.list()],
            "errors": {
                "key": error_of(lambda: stranger.models.list()),
                "model": error_of(lambda: create(model="gpt-nope")),
                "type": error_of(lambda: create(temperature="hot")),
                "unsupported": error_of(lambda: create(store=True)),
                "prompt": error_of(
                    lambda: create(messages=[{"role": "user", "content": "X" * 5000}])
                ),
            },
        }
    )
)
