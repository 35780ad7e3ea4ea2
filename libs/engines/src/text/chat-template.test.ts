import { AppError } from "@heddle/base/errors";
import type { ChatMessage } from "@heddle/contracts/engine";
import { describe, expect, it } from "vitest";
import { ChatTemplate } from "./chat-template.ts";
import { CHATML_TEMPLATE } from "./template-choice.ts";

const tokens = { bos: "<s>", eos: "</s>" };
const now = () => new Date("2026-03-05T14:07:09Z");
const hello: ChatMessage = { role: "user", content: "Hello" };

function render(source: string, messages: readonly ChatMessage[], addGenerationPrompt = true) {
  return new ChatTemplate(source, tokens, now).render(messages, { addGenerationPrompt });
}

function refusal(action: () => unknown): AppError {
  try {
    action();
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

describe("ChatTemplate", () => {
  it("gives the template its tokens, and none for tools and documents", () => {
    const source =
      "{{ bos_token }}{% if tools is none and documents is none %}{{ messages[0].content }}{% endif %}{{ eos_token }}";
    expect(render(source, [hello])).toBe("<s>Hello</s>");
  });

  it("shows a developer's message as the system's where the template lacks the role", () => {
    const developer: ChatMessage = { role: "developer", content: "x" };
    expect(render("{{ messages[0].role }}", [developer])).toBe("system");
    const aware = "{% if messages[0].role == 'developer' %}{{ messages[0].role }}{% endif %}";
    expect(render(aware, [developer])).toBe("developer");
  });

  it("passes tool calls and tool answers in Hugging Face's shape", () => {
    const source =
      "{% for m in messages %}{{ m | tojson }}{% for c in m.tool_calls or [] %}[{{ c.function.arguments.city }}]{% endfor %}{{ '\\n' }}{% endfor %}";
    const call = {
      id: "call_1",
      type: "function",
      function: { name: "weather", arguments: '{"city":"Oslo"}' },
    } as const;
    const text = render(source, [
      { role: "assistant", content: null, toolCalls: [call] },
      { role: "tool", content: "rain", toolCallId: "call_1", name: "weather" },
    ]);
    expect(text.split("\n").slice(0, 2)).toEqual([
      '{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}[Oslo]',
      '{"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "call_1"}',
    ]);
  });

  // holds: api-participant-name
  it("shows a participant's name as the template does, and else in front of the text", () => {
    const alice: ChatMessage = { ...hello, name: "Alice" };
    const bob: ChatMessage = { role: "assistant", content: "Hi", name: "Bob" };
    expect(render(CHATML_TEMPLATE, [alice, bob, hello], false)).toBe(
      "<|im_start|>user\nAlice: Hello<|im_end|>\n<|im_start|>assistant\nBob: Hi<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n",
    );
    const knows = "{% for m in messages %}[{{ m.name or m.role }}]{{ m.content }}{% endfor %}";
    expect(render(knows, [alice, bob, hello])).toBe("[Alice]Hello[Bob]Hi[user]Hello");
    const knowsUsers =
      "{% for m in messages %}{% if m.role == 'user' %}({{ m.name }}){% endif %}{{ m.content }};{% endfor %}";
    expect(render(knowsUsers, [alice, bob])).toBe("(Alice)Hello;Bob: Hi;");
    expect(render(CHATML_TEMPLATE, [{ ...hello, name: "" }], false)).toBe(
      "<|im_start|>user\nHello<|im_end|>\n",
    );
    // The text of a message says nothing of what the template does with its name.
    const text = "participant-0.";
    expect(
      render(CHATML_TEMPLATE, [{ role: "user", content: text, name: "Eve" }], false),
    ).toContain(`Eve: ${text}`);
  });

  it("shows the name of a participant who only called a tool", () => {
    const call = { id: "a", type: "function", function: { name: "f", arguments: "{}" } } as const;
    const caller = { role: "assistant", content: null, name: "Bob", toolCalls: [call] } as const;
    const source =
      "{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.name }}{% endfor %}";
    expect(render(source, [caller])).toBe("Bob:f");
  });

  it("writes calls and their answers as text where it would drop them", () => {
    const call = { id: "a", type: "function", function: { name: "f", arguments: "{}" } } as const;
    const caller = { role: "assistant", content: "so", toolCalls: [call] } as const;
    const source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    const rain = { role: "tool", content: "rain", toolCallId: "a" } as const;
    expect(render(source, [hello, caller, rain, rain])).toBe(
      '[user]Hello[assistant]so\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>' +
        "[user]<tool_response>\nrain\n</tool_response>\n<tool_response>\nrain\n</tool_response>",
    );
    expect(render(source, [hello, { ...caller, toolCalls: [] }])).toBe("[user]Hello[assistant]so");
  });

  const tools = [{ name: "f", description: "d", parameters: '{"type":"object"}' }];
  const withTools = (source: string, messages: readonly ChatMessage[]) =>
    new ChatTemplate(source, tokens, now).render(messages, { addGenerationPrompt: false, tools });

  const asked = { name: "f", arguments: '{"city": "Oslo"}' };
  const conversation: readonly ChatMessage[] = [
    hello,
    {
      role: "assistant",
      content: null,
      toolCalls: [
        { id: "call_1", type: "function", function: asked },
        { id: "call_2", type: "function", function: { name: "f", arguments: "{}" } },
      ],
    },
    { role: "tool", content: "rain", toolCallId: "call_1" },
    { role: "tool", content: "sun", toolCallId: "call_2" },
  ];
  /** A template with a part for the tools, one for each call and one for any other message. */
  const native = (tool: string, call: string, before = "", after = "") =>
    `{% if tools %}{% for t in tools %}${tool}{{ t.function.description }}{% endfor %}{% endif %}` +
    `{% for m in messages %}{% if m.tool_calls %}${before}{% for c in m.tool_calls %}${call}{% endfor %}${after}` +
    "{% else %}[{{ m.role }}{{ m.tool_call_id }}]{{ m.content }}{% endif %}{% endfor %}";
  const NAME = "{{ c.function.name }}";
  const ARGUMENTS = "{{ c.function.arguments | tojson }}";

  it("presents tools itself where it writes calls in a known form", () => {
    const hermes = native(
      "<tool_call>",
      `<tool_call>\n{"name": "${NAME}", "arguments": ${ARGUMENTS}}\n</tool_call>`,
    );
    expect(withTools(hermes, [hello])).toBe("<tool_call>d[user]Hello");
    const other = hermes.replace('{"name": "', '{"function": "');
    expect(withTools(other, [hello])).toMatch(/^\[system\]# Tools/);
    expect(new ChatTemplate(other, tokens).callForm.family).toBe("hermes");
  });

  it("gives Mistral's templates ids of nine letters and digits", () => {
    const source = native(
      "[AVAILABLE_TOOLS]",
      `{% if c.id | length != 9 %}{{ raise_exception("length 9") }}{% endif %}{"name": "${NAME}", "arguments": ${ARGUMENTS}, "id": "{{ c.id }}"}`,
      "[TOOL_CALLS] [",
      "]",
    );
    expect(new ChatTemplate(source, tokens).callForm.family).toBe("mistral");
    const text = withTools(source, conversation);
    const [, id] =
      /^d?\[AVAILABLE_TOOLS\]d\[user\]Hello\[TOOL_CALLS\] \[.*?"id": "(\w{9})"/.exec(text) ?? [];
    expect(text).toContain(`[tool${id}]rain`);
    expect(withTools(source, conversation)).toBe(text);
  });

  it("gives Llama's templates one call in a message, each with its answer", () => {
    const source = native(
      "<|start_header_id|>",
      `{% if not m.tool_calls | length == 1 %}{{ raise_exception("single") }}{% endif %}{"name": "${NAME}", "parameters": ${ARGUMENTS}}`,
    ).replace("{% else %}", '{% elif m.role == "tool" %}[ipython]{{ m.content }}{% else %}');
    expect(new ChatTemplate(source, tokens).callForm.family).toBe("llama");
    expect(withTools(source, conversation)).toBe(
      '<|start_header_id|>d[user]Hello{"name": "f", "parameters": {"city": "Oslo"}}[ipython]rain{"name": "f", "parameters": {}}[ipython]sun',
    );
  });

  it("writes calls in Granite's form where its template drops them", () => {
    const source =
      "{% if tools %}<|start_of_role|>{{ tools | tojson }}<|tool_call|>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    expect(new ChatTemplate(source, tokens).callForm.family).toBe("granite");
    expect(withTools(source, conversation)).toContain(
      '[assistant]<|tool_call|>[{"name": "f", "arguments": {"city": "Oslo"}}, {"name": "f", "arguments": {}}][tool]rain',
    );
  });

  it("presents tools as text where it fails on one of them", () => {
    const source = native(
      "<tool_call>{{ t.function.parameters.city + 1 if t.function.parameters.city else '' }}",
      `<tool_call>\n{"name": "${NAME}", "arguments": ${ARGUMENTS}}\n</tool_call>`,
    );
    const odd = [{ name: "f", description: "d", parameters: '{"city":{"a":1}}' }];
    const text = new ChatTemplate(source, tokens).render([hello], {
      addGenerationPrompt: false,
      tools: odd,
    });
    expect(text).toMatch(/^\[system\]# Tools/);
  });

  it("presents tools in the system message where it does not", () => {
    const source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    const shape =
      '{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}';
    const added = withTools(source, [hello]);
    expect(added).toMatch(/^\[system\]# Tools\n.*<tool_call>.*\[user\]Hello$/s);
    expect(added).toContain(`<tools>\n${shape}\n</tools>`);
    const joined = withTools(source, [{ role: "system", content: "Be brief." }, hello]);
    expect(joined).toMatch(/^\[system\]Be brief\.\n\n# Tools/);
  });

  it("presents tools before the first message where it refuses a system message", () => {
    const source =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    expect(withTools(source, [hello])).toMatch(/^\[user\]# Tools\n.*Hello$/s);
  });

  it("leaves arguments that are no JSON object as text", () => {
    const source = "{{ messages[0].tool_calls[0].function.arguments }}";
    const withArguments = (text: string): ChatMessage => ({
      role: "assistant",
      content: null,
      toolCalls: [{ id: "a", type: "function", function: { name: "f", arguments: text } }],
    });
    expect(render(source, [withArguments('{"cut')])).toBe('{"cut');
    expect(render(source, [withArguments("3")])).toBe("3");
  });

  it("gives null content only to a template that tests for none", () => {
    const message: ChatMessage = { role: "assistant", content: null };
    expect(render("[{{ messages[0].content }}]", [message])).toBe("[]");
    expect(render("{{ messages[0]['content'] is none }}", [message])).toBe("true");
    const fails = "{{ messages[0].content is none and false }}{{ messages[0].content + 'x' }}";
    expect(render(fails, [message])).toBe("falsex");
  });

  it("answers invalid_value for messages when the template raises", () => {
    const source =
      "{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}";
    const error = refusal(() => render(source, [{ role: "assistant", content: "x" }]));
    expect(error.code).toBe("invalid_value");
    expect(error.param).toBe("messages");
    expect(error.message).toBe(
      "the model's chat template refuses these messages: roles must alternate",
    );
  });

  it("answers invalid_value when the template fails on the messages", () => {
    const error = refusal(() => render("{{ messages[0].content + 1 }}{{ none + 1 }}", [hello]));
    expect([error.code, error.param]).toEqual(["invalid_value", "messages"]);
    expect(error.message).toContain("cannot render these messages");
  });

  it("refuses a source that is no jinja, naming the option that replaces it", () => {
    const error = refusal(() => new ChatTemplate("{% for %}", tokens));
    expect([error.code, error.param]).toEqual(["invalid_value", "chatTemplate"]);
    expect(error.message).toContain("chatTemplate");
  });

  it("bounds range, so that a template cannot fill the memory", () => {
    const error = refusal(() => render("{% for i in range(1000000000) %}x{% endfor %}", [hello]));
    expect(error.message).toContain("range() of 1000000000 items");
    expect(render("{% for i in range(1, 7, 2) %}{{ i }}{% endfor %}", [hello])).toBe("135");
  });

  it("formats the injected date in UTC with English names", () => {
    const format = "%d %b %Y|%A, %B %-d|%H:%M:%S|%I %p|%y-%m|%a|%%|%Q";
    expect(render(`{{ strftime_now('${format}') }}`, [hello])).toBe(
      "05 Mar 2026|Thursday, March 5|14:07:09|02 PM|26-03|Thu|%|%Q",
    );
  });

  it("renders Llama 3's header style with trim and loop.index0", () => {
    const source =
      "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
    expect(render(source, [{ role: "user", content: " Hi " }])).toBe(
      "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    );
  });
});
