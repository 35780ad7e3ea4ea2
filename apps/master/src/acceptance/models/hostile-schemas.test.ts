// holds: api-json-schema, api-tools

import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HOSTILE_SCHEMAS, type HostileSchema } from "../../../test/fuzz/hostile-schemas.ts";
import { byteToken, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The tiny model's weights are random: the grammar alone makes an answer right.

const AT_ONCE = 4;
/** What ends texts, lists and objects is likelier, so that most answers end. */
const CLOSING = Object.fromEntries([...Buffer.from('"}]')].map((byte) => [byteToken(byte), 8]));

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
});
afterAll(() => cluster.close());

const asked = {
  model: TINY,
  messages: [{ role: "user" as const, content: "hello" }],
  max_tokens: 3_000,
  seed: 5,
  logit_bias: CLOSING,
};

/** The answer of a call with the schema as that of its JSON. */
async function answered(schema: Record<string, unknown>): Promise<string> {
  const { choices } = await cluster.openai.chat.completions.create({
    ...asked,
    response_format: { type: "json_schema", json_schema: { name: "hostile", schema } },
  });
  const [choice] = choices;
  return choice?.finish_reason === "stop" ? (choice.message.content ?? "") : "cut";
}

/** The arguments of a call with the schema as that of its tool, from the stream's deltas. */
async function called(schema: Record<string, unknown>): Promise<string> {
  const stream = cluster.openai.chat.completions.stream({
    ...asked,
    tools: [{ type: "function", function: { name: "hostile", parameters: schema } }],
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const [choice] = (await stream.finalChatCompletion()).choices;
  const [call] = choice?.message.tool_calls ?? [];
  if (choice?.finish_reason !== "tool_calls" || call?.type !== "function") return "cut";
  return call.function.arguments;
}

function validatorOf(schema: object) {
  const options = { strict: false, multipleOfPrecision: 9, logger: false } as const;
  // Lists in `items` are of older drafts.
  const isOlder = JSON.stringify(schema).includes('"items":[');
  const ajv = isOlder ? new Ajv(options) : new Ajv2020(options);
  addFormats.default(ajv);
  return ajv.compile(schema);
}

/** What became of the schema, in the words of the table. */
async function outcomeOf(
  { json }: HostileSchema,
  ask: (schema: Record<string, unknown>) => Promise<string>,
  param: string,
): Promise<string> {
  const schema = JSON.parse(json);
  try {
    const text = await ask(schema);
    return validatorOf(schema)(JSON.parse(text)) ? "valid" : `not valid: ${text}`;
  } catch (error) {
    if (!(error instanceof OpenAI.BadRequestError) || error.param !== param) return String(error);
    const [, pointer] = /: the schema(?: at (\S*))?: /.exec(error.message) ?? [];
    return `#${pointer ?? ""}`;
  }
}

async function outcomes(
  ask: (schema: Record<string, unknown>) => Promise<string>,
  param: string,
): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const waiting = [...HOSTILE_SCHEMAS];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      found[next.name] = await outcomeOf(next, ask, param);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

const EXPECTED = Object.fromEntries(HOSTILE_SCHEMAS.map(({ name, outcome }) => [name, outcome]));

describe("hostile schemas: a valid answer, or a 400 that names the place", () => {
  it("as the format of an answer", async () => {
    expect(await outcomes(answered, "response_format.json_schema.schema")).toEqual(EXPECTED);
  });

  it("as the parameters of a tool, whose deltas the client joins", async () => {
    expect(await outcomes(called, "tools[0].function.parameters")).toEqual(EXPECTED);
  });
});
