import type { OfferedTools } from "./tools.ts";

/** A chat request as code shows it. */
export interface ShownRequest extends OfferedTools {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly temperature: number;
  readonly max_tokens: number;
}

export const CODE_LANGUAGES = ["curl", "Python", "TypeScript"] as const;
export type CodeLanguage = (typeof CODE_LANGUAGES)[number];

/** A program that sends the request to a master; it reads the key from HEDDLE_API_KEY. */
export function viewCode(language: CodeLanguage, origin: string, request: ShownRequest): string {
  const base = `${origin}/api/v1`;
  if (language === "curl") return curl(base, request);
  return language === "Python" ? python(base, request) : typescript(origin, request);
}

function curl(base: string, request: ShownRequest): string {
  const body = JSON.stringify({ ...request, stream: true }, null, 2);
  return `curl -N ${base}/chat/completions \\
  -H "Authorization: Bearer $HEDDLE_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${body.replaceAll("'", "'\\''")}'
`;
}

function python(base: string, request: ShownRequest): string {
  const { model, messages, temperature, max_tokens, tools, tool_choice } = request;
  const choice = tool_choice ? `\n    tool_choice=${JSON.stringify(tool_choice)},` : "";
  // Booleans of JSON are none of Python.
  const offered = tools
    ? `\n    tools=json.loads(${JSON.stringify(JSON.stringify(tools))}),${choice}`
    : "";
  // Texts and numbers of JSON are Python's too.
  return `${tools ? "import json\n" : ""}import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(base)}, api_key=os.environ["HEDDLE_API_KEY"])
stream = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=${JSON.stringify(messages, null, 4).replaceAll("\n", "\n    ")},
    temperature=${temperature},
    max_tokens=${max_tokens},${offered}
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`;
}

function typescript(origin: string, request: ShownRequest): string {
  return `import { Heddle } from "@heddle/client/heddle";

const heddle = new Heddle({
  endpoint: ${JSON.stringify(origin)},
  auth_token: process.env.HEDDLE_API_KEY,
});
const stream = heddle.chat.stream(${JSON.stringify(request, null, 2)});
for await (const { choices } of stream) process.stdout.write(choices[0]?.delta.content ?? "");
`;
}
