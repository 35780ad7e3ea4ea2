import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;

beforeAll(async () => {
  server = await startTestMaster();
  openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey });
});
afterAll(() => server.master.close(0));

const hello = {
  model: "FamilyA-1-2B",
  messages: [{ role: "user" as const, content: "one two three" }],
};

describe("POST /api/v1/chat/completions", () => {
  it("answers the official client with the contract's shape", async () => {
    const { data, response } = await openai.chat.completions.create(hello).withResponse();
    expect(data.object).toBe("chat.completion");
    expect(data.id).toMatch(/^chatcmpl-/);
    expect(data.choices).toEqual([
      {
        index: 0,
        message: { role: "assistant", content: "one two three word3 word4", refusal: null },
        logprobs: null,
        finish_reason: "stop",
      },
    ]);
    expect(data.usage).toMatchObject({
      prompt_tokens: 3,
      completion_tokens: 5,
      total_tokens: 8,
      prompt_tokens_details: { cached_tokens: 1 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    expect(data.system_fingerprint).toBe("tiny random model (cpu)");
    expect(response.headers.get("x-request-id")).toMatch(/^req_/);
    expect(response.headers.get("x-ratelimit-limit-tokens")).toBe("100000000000");
    expect(response.headers.get("x-ratelimit-reset-requests")).toMatch(/^\d+(\.\d+)?(ms|s)$/);
  });

  it("streams the same text to the official client, role first", async () => {
    const stream = await openai.chat.completions.create({ ...hello, stream: true });
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    expect(chunks[0]?.choices[0]?.delta.role).toBe("assistant");
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe(
      "one two three word3 word4",
    );
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("stop");
    expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
  });
});
