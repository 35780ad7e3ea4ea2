// holds: api-tools, api-reasoning

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { TestSession } from "../testing/test-session.ts";

// The tiny model's answers are noise, so that only the grammar makes calls of them.

const NAME = "{{ c.function.name }}";
const ARGUMENTS = "{{ c.function.arguments | tojson }}";

/** A ChatML template that presents tools and writes calls; `turn` ends the prompt. */
function templateOf(shown: string, call: string, turn = ""): string {
  return (
    `{% for t in tools or [] %}${shown}{{ t | tojson }}{% endfor %}` +
    `{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}{% for c in m.tool_calls %}${call}{% endfor %}` +
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" +
    `{% if add_generation_prompt %}<|im_start|>assistant\n${turn}{% endif %}`
  );
}

/** As DeepSeek's templates join them to the text before. */
const TEXT_ARGUMENTS = "{{ '' + c.function.arguments }}";
const HERMES_CALL = `<tool_call>\n{"name": "${NAME}", "arguments": ${ARGUMENTS}}\n</tool_call>`;
const LIST_CALL = `[TOOL_CALLS] [{"name": "${NAME}", "arguments": ${ARGUMENTS}}]`;
const TEMPLATES = {
  hermes: templateOf("<tool_call>", HERMES_CALL),
  llama: templateOf(
    "<|start_header_id|>ipython<|python_tag|>",
    `{"name": "${NAME}", "parameters": ${ARGUMENTS}}`,
  ),
  mistral: templateOf("[AVAILABLE_TOOLS]", LIST_CALL),
  "mistral-args": templateOf("[AVAILABLE_TOOLS]", `[TOOL_CALLS]${NAME}[ARGS]${ARGUMENTS}`),
  granite: templateOf(
    "<|start_of_role|>",
    `<|tool_call|>[{"name": "${NAME}", "arguments": ${ARGUMENTS}}]`,
  ),
  deepseek: templateOf(
    "",
    `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>${NAME}\n\`\`\`json\n${TEXT_ARGUMENTS}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  ),
  "deepseek-args": templateOf(
    "",
    `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>${NAME}<｜tool▁sep｜>${TEXT_ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  ),
  "qwen-coder": templateOf(
    "<parameter=",
    `<tool_call>\n<function=${NAME}>\n{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>`,
  ),
  none: templateOf("", NAME),
};

const HARMONY = templateOf(
  "<|channel|>analysis",
  `<|channel|>commentary to=functions.${NAME} <|constrain|>json<|message|>${ARGUMENTS}`,
);
/** Draws the letter wherever the grammar takes it. */
const preferred = (letter: string) => [{ token: 4 + letter.charCodeAt(0), bias: 100 }];

const weather = {
  name: "weather",
  parameters: JSON.stringify({
    type: "object",
    properties: { city: { enum: ["Oslo", "Rome"] }, days: { type: "integer", maximum: 9 } },
    required: ["city", "days"],
  }),
};
const now = { name: "now", parameters: '{"type":"object","properties":{}}' };
const CALL = /^<tool_call>\n\{"name": "(\w+)", "arguments": (.*)\}\n<\/tool_call>$/s;

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-forms-"));
});
afterAll(() => rm(directory, { recursive: true }));

/** A session over a tiny model of the template, some of whose control tokens have these texts. */
async function open(template: string, controls: Readonly<Record<string, string>> = {}) {
  const path = join(directory, `${Object.values(controls).length}.gguf`);
  await writeTinyModel(path, { controls });
  return TestSession.open({ chatTemplate: template }, path);
}

function ask(session: TestSession, names: readonly string[], more: object = {}) {
  return session.ask({
    prompt: [{ role: "user", content: "weather in Oslo?" }],
    tools: [weather, now],
    maxTokens: 400,
    sampling: { temperature: 1, seed: 5 },
    toolUse: { choice: "required", names, parallel: false },
    ...more,
  });
}

describe("calls of tools in a family's form", () => {
  it.each(Object.entries(TEMPLATES))("%s", async (_, template) => {
    const session = await open(template);
    try {
      const one = await ask(session, ["weather"]);
      const [, name, args = ""] = CALL.exec(one.texts[0] ?? "") ?? [];
      expect(name).toBe("weather");
      expect(["Oslo", "Rome"]).toContain(JSON.parse(args).city);
      expect(one.deltas.length).toBeGreaterThan(5);
      const several = await ask(session, ["now"], {
        toolUse: { choice: "required", names: ["now"], parallel: true },
      });
      for (const call of several.texts[0]?.split("</tool_call>\n") ?? []) {
        expect(call.replace(/(<\/tool_call>)?$/, "</tool_call>")).toMatch(CALL);
      }
      const free = await ask(session, ["now"], {
        toolUse: { choice: "auto", names: ["now"], parallel: false },
        maxTokens: 30,
      });
      expect(free.error).toBeUndefined();
      const cut = await ask(session, ["weather"], { maxTokens: 3 });
      expect(cut.reasons).toEqual(["length"]);
    } finally {
      await session.close();
    }
  });

  it("the mark is the vocabulary's control token, and part of no other answer", async () => {
    const session = await open(TEMPLATES.mistral, { "<|endoftext|>": "[TOOL_CALLS]" });
    try {
      const { texts, usage } = await ask(session, ["now"]);
      expect(texts[0]).toMatch(CALL);
      // The mark is one token, and the rest, noise in ids aside, at most one for each byte.
      const rest = ' [{"name": "now", "arguments": {}, "id": "123456789"}]';
      expect(usage?.completionTokens).toBeLessThanOrEqual(rest.length + 2);
    } finally {
      await session.close();
    }
  });
});

describe("strings of stop", () => {
  const stop = ['"', "e", "\n"];
  const toolUse = { choice: "auto", names: ["weather"], parallel: false } as const;

  it.each(["hermes", "llama", "granite"] as const)("cut no call: %s", async (family) => {
    const marks = { hermes: "<tool_call>", llama: "<|python_tag|>", granite: "<|tool_call|>" };
    const session = await open(TEMPLATES[family], { "<|endoftext|>": marks[family] });
    try {
      const called = { temperature: 1, seed: 5, logitBias: [{ token: 0, bias: 100 }] };
      const answers = [
        await ask(session, ["weather"], { stop }),
        await ask(session, ["weather"], { stop, toolUse, sampling: called }),
        await ask(session, ["weather"], { stop, toolUse, sampling: called, minTokens: 9 }),
      ];
      for (const { texts, reasons } of answers) {
        expect(texts[0]).toMatch(CALL);
        expect(reasons).toEqual(["stop"]);
      }
    } finally {
      await session.close();
    }
  });

  it("end the text where no call is", async () => {
    const session = await open(TEMPLATES.hermes);
    try {
      const sampling = { temperature: 1, seed: 5, logitBias: preferred("e") };
      const { texts, reasons } = await ask(session, ["weather"], { stop, toolUse, sampling });
      expect([texts, reasons]).toEqual([[""], ["stop"]]);
    } finally {
      await session.close();
    }
  });
});

describe("calls of tools as elements, as Qwen3-Coder writes them", () => {
  const parameters = {
    type: "object",
    properties: {
      path: { $ref: "#/$defs/path" },
      mode: { enum: ["r", "w"] },
      text: { type: "string", maxLength: 12 },
      lines: { type: "array", items: { type: "integer" }, maxItems: 3 },
      note: { type: ["string", "null"], maxLength: 4 },
    },
    required: ["path", "text", "lines", "note"],
    additionalProperties: false,
    $defs: { path: { type: "string", pattern: "^/[a-z<\\n]{1,6}$" } },
  };

  it("have arguments that are valid for any schema, texts as they are", async () => {
    const session = await open(TEMPLATES["qwen-coder"]);
    const validate = new Ajv2020({ strict: false }).compile(parameters);
    try {
      for (let seed = 1; seed <= 8; seed++) {
        const tool = { name: "save", parameters: JSON.stringify(parameters) };
        const { texts, error } = await ask(session, ["save"], {
          tools: [tool],
          maxTokens: 900,
          sampling: { temperature: 1.5, seed },
        });
        expect(error).toBeUndefined();
        const args: unknown = JSON.parse(CALL.exec(texts[0] ?? "")?.[2] ?? "null");
        expect(validate(args), JSON.stringify(args)).toBe(true);
      }
    } finally {
      await session.close();
    }
  });

  it("name the place of a parameter that cannot be written", async () => {
    const session = await open(TEMPLATES["qwen-coder"]);
    try {
      const tool = {
        name: "f",
        parameters: '{"type":"object","properties":{"a>b":{"type":"string"}}}',
      };
      const { error } = await ask(session, ["f"], { tools: [tool] });
      expect(error).toMatchObject({ param: "tools[0].function.parameters" });
      expect(error?.message).toContain("/properties/a>b");
    } finally {
      await session.close();
    }
  });
});

describe("channels, as gpt-oss writes them", () => {
  const marks = {
    "<|endoftext|>": "<|channel|>",
    "<|im_start|>": "<|message|>",
    "<pad>": "<|constrain|>",
  };

  it("are read, be they tokens or not; JSON is in the final one", async () => {
    for (const controls of [{}, marks]) {
      const session = await open(HARMONY.replaceAll("<|im_start|>", "[S]"), controls);
      try {
        const call = await ask(session, ["weather"], {
          sampling: { temperature: 1, seed: 1, logitBias: preferred(" ") },
        });
        expect(call.error).toBeUndefined();
        expect(call.texts[0]).toMatch(CALL);
        const schema = '{"type":"integer","minimum":0,"maximum":99}';
        const json = await session.ask({
          prompt: [{ role: "user", content: "hm" }],
          format: { kind: "json_schema", schema },
          maxTokens: 400,
          sampling: { temperature: 1, seed: 3, logitBias: preferred("f") },
        });
        expect(json.texts[0]).toMatch(/^\d{1,2}$/);
        const thought = await ask(session, ["weather"], {
          sampling: {
            temperature: 1,
            seed: 1,
            logitBias: [{ token: 0, bias: 100 }, ...preferred("<"), ...preferred("a")],
          },
          maxTokens: 300,
        });
        expect(thought.texts[0]).toMatch(/^<think>[a<]+/);
      } finally {
        await session.close();
      }
    }
  });
});

describe("a model that reasons", () => {
  const schema = '{"type":"integer","minimum":0,"maximum":99}';
  const format = { kind: "json_schema", schema } as const;
  const thinks = "<think>\n";

  it("begins freely where the prompt opens it, and then gives the schema's answer", async () => {
    const template = templateOf("<tool_call>", HERMES_CALL, thinks);
    const session = await open(template);
    try {
      const answers = await Promise.all(
        [1, 2, 3].map((seed) =>
          session.ask({
            prompt: [{ role: "user", content: "hm" }],
            format,
            maxTokens: 60,
            sampling: { temperature: 1, seed },
          }),
        ),
      );
      for (const { texts, reasons } of answers) {
        const [, answer] = (texts[0] ?? "").split("</think>");
        if (answer === undefined) expect(reasons).toEqual(["length"]);
        else expect(answer.trim()).toMatch(/^\d{0,2}$/);
      }
    } finally {
      await session.close();
    }
  });

  it("ends it with its control token, which is part of the text", async () => {
    const template = templateOf("<tool_call>", HERMES_CALL, thinks);
    const session = await open(template, { "<|endoftext|>": "</think>" });
    try {
      const logitBias = [{ token: 0, bias: 100 }];
      const { texts, reasons } = await session.ask({
        prompt: [{ role: "user", content: "hm" }],
        format,
        maxTokens: 60,
        sampling: { temperature: 1, seed: 1, logitBias },
      });
      expect(reasons).toEqual(["stop"]);
      expect(texts[0]).toMatch(/^<\/think>[ \n]{0,8}\d{1,2}$/);
      const { texts: called } = await ask(session, ["now"], {
        sampling: { temperature: 1, seed: 1, logitBias },
      });
      expect(called[0]?.replace(/^<\/think>[ \n]*/, "")).toMatch(CALL);
    } finally {
      await session.close();
    }
  });
});
