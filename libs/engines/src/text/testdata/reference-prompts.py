"""Writes the reference prompts: conversations rendered by Python's jinja2 as transformers' apply_chat_template does.

python3 reference-prompts.py > reference-prompts.json   (needs jinja2)
"""

import hashlib
import json
import random
from datetime import datetime
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONVERSATIONS = 200
WORDS = ["loom", "warp", "weft", "naïve", "☃", "  two", "tab\there", "a\nb", '"quoted"', "{{ x }}", "<b>", "3.14", "Ünï", "日本"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city <now> & \"later\"",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its näme"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


def refuse(message):
    raise TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda fmt: datetime(2026, 3, 5, 14, 7, 9).strftime(fmt)
    return env


def conversation(rng):
    """Messages in OpenAI's form; templates get a call's arguments as an object."""

    def text():
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8)))

    messages = [{"role": "system", "content": text()}] if rng.random() < 0.5 else []
    with_tools = rng.random() < 0.5
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text()})
        if with_tools and rng.random() < 0.6:
            call = {
                "id": "".join(rng.choice("abcXYZ019") for _ in range(9)),
                "type": "function",
                "function": {"name": "weather", "arguments": {"city": text(), "days": rng.randint(0, 9)}},
            }
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "content": text(), "tool_call_id": call["id"]})
        messages.append({"role": "assistant", "content": text()})
    messages.append({"role": "user", "content": text()})
    return messages, TOOLS if with_tools else None


def main():
    templates = json.loads((Path(__file__).parent / "reference-templates.json").read_text())
    env = environment()
    compiled = {name: env.from_string(source) for name, source in templates.items()}
    rng = random.Random(7)
    written = []
    for index in range(CONVERSATIONS):
        messages, tools = conversation(rng)
        usable = [name for name in templates if name.startswith("tools-") or tools is None]
        name = usable[index % len(usable)]
        text = compiled[name].render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
        )
        digest = hashlib.sha256(text.encode()).hexdigest()
        written.append({"template": name, "tools": tools is not None, "messages": messages, "sha256": digest})
    print(json.dumps({"tools": TOOLS, "conversations": written}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
