import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { callFormOf } from "./call-form.ts";
import { CallReader } from "./call-reader.ts";
import { HarmonyReader } from "./calls/harmony-reader.ts";

// What templates of the families have, as far as it decides their form.
const MARKS = {
  hermes: "tools <tool_call>",
  llama: '<|start_header_id|> ipython tools "parameters": ',
  mistral: "tools [TOOL_CALLS] [",
  "mistral-args": "tools [TOOL_CALLS] [CALL_ID] [ARGS]",
  granite: "tools <|tool_call|> <|start_of_role|>",
  deepseek: "<｜tool▁calls▁begin｜> ```json",
  "qwen-coder": "tools <tool_call> <function= <parameter=",
} as const;

const WEATHER = '{"city": "Ri\\"}{o ☃", "days": [1, {"n": 2}]}';
const CALLS = [
  `<tool_call>\n{"name": "weather", "arguments": ${WEATHER}}\n</tool_call>`,
  '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
];
const BOTH = CALLS.join("\n");

/** Recorded answers, and what they are in the engine's form. */
const RECORDED: readonly [family: keyof typeof MARKS, text: string, expected: string][] = [
  ["hermes", `So:\n${BOTH}`, `So:\n${BOTH}`],
  [
    "llama",
    `{"name": "weather", "parameters": ${WEATHER}}; {"name": "now", "parameters": {}}`,
    BOTH,
  ],
  ["llama", `<|python_tag|>{"name": "weather", "parameters": ${WEATHER}}`, CALLS[0] as string],
  ["llama", '{"name": "Ann", "age": 3} {"name": "now"', '{"name": "Ann", "age": 3} {"name": "now"'],
  ["llama", `Well <|python_tag|>{"name": "now", "parameters": {}}`, `Well ${CALLS[1]}`],
  [
    "mistral",
    `[TOOL_CALLS] [{"name": "weather", "arguments": ${WEATHER}, "id": "a1B2c3D4e"}, {"name": "now", "arguments": {}}]`,
    BOTH,
  ],
  [
    "mistral",
    `Let me see.[TOOL_CALLS][{"name": "now", "arguments": {}}]`,
    `Let me see.${CALLS[1]}`,
  ],
  ["mistral-args", `[TOOL_CALLS]weather[ARGS]${WEATHER}[TOOL_CALLS]now[ARGS]{}`, BOTH],
  ["mistral-args", `So [TOOL_CALLS]now[CALL_ID]a1B2c3D4e[ARGS]{}`, `So ${CALLS[1]}`],
  [
    "granite",
    `<|tool_call|>[{"name": "weather", "arguments": ${WEATHER}}, {"name": "now", "arguments": {}}]`,
    BOTH,
  ],
  ["granite", "No call <|tool", "No call <|tool"],
  [
    "deepseek",
    `Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n\`\`\`json\n${WEATHER}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n\`\`\`json\n{}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    `Yes.${BOTH}`,
  ],
  [
    "qwen-coder",
    'So:\n<tool_call>\n<function=weather>\n<parameter=city>\nRi"}{o ☃\n</parameter>\n<parameter=days>\n[1, {"n": 2}]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
    `So:\n${BOTH}`,
  ],
  [
    "qwen-coder",
    "<tool_call>\n<function=weather>\n<parameter=city>\n\n\\ two\nlines\n\n</parameter>\n</function>\n</tool_call>",
    '<tool_call>\n{"name": "weather", "arguments": {"city": "\\n\\\\ two\\nlines\\n"}}\n</tool_call>',
  ],
];

const TOOLS = [
  {
    name: "weather",
    parameters: '{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"array"}}}',
  },
  { name: "now", parameters: "{}" },
];

function formOf(family: keyof typeof MARKS) {
  const form = callFormOf(MARKS[family]);
  if (form?.family !== family) throw new Error(`the form of ${family} is ${form?.family}`);
  return form;
}

function read(family: keyof typeof MARKS, pieces: readonly string[], style?: "open" | "tagged") {
  const reader = new CallReader(formOf(family), style, TOOLS);
  return pieces.map((piece) => reader.push(piece)).join("") + reader.finish();
}

describe("call reader: a recorded answer becomes calls wherever it is cut:", () => {
  it.each(RECORDED)("%s, answer %#", (family, text, expected) => {
    for (let cut = 0; cut <= text.length; cut++) {
      const pieces = [text.slice(0, cut), text.slice(cut)];
      expect({ cut, text: read(family, pieces) }).toEqual({ cut, text: expected });
    }
    expect(read(family, [...text])).toBe(expected);
  });

  it.each(RECORDED)("%s, answer %# behind reasoning", (family, text, expected) => {
    const thought = '<think>[TOOL_CALLS]<|tool_call|>{"name": "now"</think>';
    expect(read(family, [...thought, ...text], "tagged")).toBe(thought + expected);
    const open = thought.slice("<think>".length);
    expect(read(family, [open + text], "open")).toBe(open + expected);
    expect(read(family, [...text], "tagged")).toBe(expected);
  });

  it("arguments come piece by piece, and those that are cut stay cut", () => {
    const reader = new CallReader(formOf("mistral-args"), undefined, TOOLS);
    expect(reader.push("[TOOL_CALLS]now[ARG")).toBe('<tool_call>\n{"name": "now", "arguments": ');
    expect(reader.push('S]{"a')).toBe('{"a');
    expect(reader.push('": "x')).toBe('": "x');
    expect(reader.finish()).toBe("");
  });
});

describe("harmony reader: messages of channels become text wherever they are cut:", () => {
  const analysis = "<|channel|>analysis<|message|>Hm, <think>?<|end|><|start|>assistant";
  const thought = "<think>Hm, <think>?</think>";
  const call = `<tool_call>\n{"name": "weather", "arguments": ${WEATHER}}\n</tool_call>`;
  it.each([
    ["plain text", "plain text"],
    ["<|channel|>final<|message|>Hello", "Hello"],
    [`${analysis}<|channel|>final<|message|>Hello<|return|>`, `${thought}Hello`],
    [
      `${analysis}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>${WEATHER}<|call|>`,
      `${thought}I look.${call}`,
    ],
    [` to=functions.weather<|channel|>commentary json<|message|>${WEATHER}`, call],
    ["<|channel|>analysis<|message|>cut", "<think>cut"],
    [
      '<|channel|>commentary to=functions.now<|message|>{"a',
      '<tool_call>\n{"name": "now", "arguments": {"a',
    ],
    ["<|channel|>final<|message|>a <| b", "a <| b"],
  ])("answer %#", (text, expected) => {
    const read = (pieces: readonly string[]) => {
      const reader = new HarmonyReader();
      return pieces.map((piece) => reader.push(piece)).join("") + reader.finish();
    };
    for (let cut = 0; cut <= text.length; cut++) {
      expect(read([text.slice(0, cut), text.slice(cut)])).toBe(expected);
    }
    expect(read([...text])).toBe(expected);
  });
});

/** Arguments of the tool `weather`; `city` is a text, which some families write as it is. */
const someCall = fc.record({
  city: fc.string({ unit: "grapheme", maxLength: 12 }),
  days: fc.array(fc.jsonValue({ maxDepth: 2 }), { maxLength: 3 }),
});
type Arguments = typeof someCall extends fc.Arbitrary<infer T> ? T : never;

/** As the templates of the families have a model write its calls. */
const WRITTEN: readonly [family: string, marks: string, write: (of: Arguments[]) => string][] = [
  [
    "DeepSeek V3",
    MARKS.deepseek,
    (of) =>
      `<｜tool▁calls▁begin｜>${of
        .map(
          (each) =>
            `<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n\`\`\`json\n${JSON.stringify(each)}\n\`\`\`<｜tool▁call▁end｜>`,
        )
        .join("\n")}<｜tool▁calls▁end｜>`,
  ],
  [
    "DeepSeek V3.1",
    "<｜tool▁calls▁begin｜>",
    (of) =>
      `<｜tool▁calls▁begin｜>${of
        .map(
          (each) =>
            `<｜tool▁call▁begin｜>weather<｜tool▁sep｜>${JSON.stringify(each)}<｜tool▁call▁end｜>`,
        )
        .join("")}<｜tool▁calls▁end｜>`,
  ],
  [
    "Qwen3-Coder",
    MARKS["qwen-coder"],
    (of) =>
      of
        .map(
          ({ city, days }) =>
            `<tool_call>\n<function=weather>\n<parameter=city>\n${city}\n</parameter>\n<parameter=days>\n${JSON.stringify(days)}\n</parameter>\n</function>\n</tool_call>`,
        )
        .join("\n"),
  ],
  [
    "gpt-oss",
    "<|channel|><|message|>analysis",
    (of) =>
      of
        .map(
          (each) =>
            `<|channel|>commentary to=functions.weather <|constrain|>json<|message|>${JSON.stringify(each)}`,
        )
        .join("<|call|><|start|>assistant"),
  ],
];

describe("call reader: any calls come back as they were, in pieces of any size:", () => {
  it.each(WRITTEN)("%s", (_, marks, write) => {
    const form = callFormOf(marks);
    if (form === undefined) throw new Error(`${marks} has no form`);
    const property = fc.property(
      fc.array(someCall, { minLength: 1, maxLength: 3 }),
      fc.array(fc.nat({ max: 24 }), { minLength: 1, maxLength: 40 }),
      (calls, sizes) => {
        const text = write(calls);
        const reader =
          form.family === "harmony" ? new HarmonyReader() : new CallReader(form, undefined, TOOLS);
        let out = "";
        for (let at = 0, i = 0; at < text.length; i++) {
          const size = (sizes[i % sizes.length] ?? 0) + 1;
          out += reader.push(text.slice(at, at + size));
          at += size;
        }
        out += reader.finish();
        const found = [...out.matchAll(/<tool_call>\n([^\n]*)\n<\/tool_call>/g)];
        const read = found.map(([, json = ""]) => JSON.stringify(JSON.parse(json)));
        const said = calls.map((each) => JSON.stringify({ name: "weather", arguments: each }));
        expect(read).toEqual(said);
      },
    );
    fc.assert(property, { numRuns: 300 });
  });
});

describe("call form: a template's is", () => {
  it.each([
    ["", undefined],
    ["{{ messages }} <tool_call>", undefined],
    ["tools <function= <tool_call>", undefined],
    ["tools <tool_call> <arg_key>", undefined],
    [MARKS.hermes, "hermes"],
    ["<｜tool▁calls▁begin｜>", "deepseek"],
    ["<|channel|><|message|>analysis", "harmony"],
    [`${MARKS.llama} <tool_call>`, "hermes"],
  ])("%j: %s", (template, family) => {
    expect(callFormOf(template)?.family).toBe(family);
  });
});
