// holds: api-moderation-judge

import { AppError } from "@heddle/base/errors";
import type { GenerateRequest, TokenLogprob } from "@heddle/contracts/engine";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { judgeScore } from "./judge-questions.ts";

const MODEL = "FamilyA-1-2B";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
  server.directory.views = [];
});

const scored = (token: string, probability: number) => ({
  token,
  bytes: [...Buffer.from(token)],
  logprob: Math.log(probability),
});

/** A token with these alternatives, the most likely first. */
function alternatives(...top: readonly (readonly [string, number])[]): TokenLogprob {
  const all = top.map(([token, probability]) => scored(token, probability));
  return { ...all[0]!, top: all };
}

function questionOf({ input }: GenerateRequest): string {
  if (input.kind !== "chat") throw new Error("no chat");
  return input.messages[0]?.content ?? "";
}

interface Answer {
  readonly model: string;
  readonly results: {
    readonly flagged: boolean;
    readonly category_scores: Record<string, number>;
  }[];
  readonly error: { readonly code: string; readonly param: string | null };
}

async function moderate(body: object, key?: string) {
  const options = key === undefined ? {} : { key };
  const reply = await send(server, "POST", "/api/v1/moderations", body, options);
  return { status: reply.status, body: (await reply.json()) as Answer };
}

const judge = (input: unknown, model = `moderation-judge:${MODEL}`) => moderate({ model, input });

describe("moderation judge: a served chat model", () => {
  it("is asked about each category of each text, whose share of yes is the score", async () => {
    server.dispatch.script.firstToken = (request) => {
      const question = questionOf(request);
      const isViolent = question.includes("murder") && question.includes('Category "violence":');
      return isViolent
        ? alternatives([" Yes", 0.6], ["no", 0.2])
        : alternatives(["No", 0.9], ["y", 0.1]);
    };
    const before = server.dispatch.calls.length;
    const { status, body } = await judge(["I will murder it", "hello"]);
    expect([status, body.model]).toEqual([200, `moderation-judge:${MODEL}`]);
    const scores = body.results.map(({ category_scores }) => category_scores);
    expect(scores.map((each) => Object.keys(each).length)).toEqual([13, 13]);
    expect(scores[0]?.["violence"]).toBeCloseTo(0.75);
    expect(scores[0]?.["hate"]).toBeCloseTo(0.1);
    expect(body.results.map(({ flagged }) => flagged)).toEqual([true, false]);
    expect(server.dispatch.calls.length - before).toBe(26);
    expect(server.rows.at(-1)).toMatchObject({ model: MODEL, completionTokens: 26 });
  });

  it("is the configured one, or a ready one, where the request names none", async () => {
    server.dispatch.script.firstToken = () => alternatives(["no", 1]);
    const none = await judge("hello", "moderation-judge");
    expect([none.status, none.body.error.param]).toEqual([404, "model"]);
    server.directory.views = [replicaOn("node-test", "tiny", "ready", 2048)];
    expect((await judge("hello", "moderation-judge")).body.model).toBe(`moderation-judge:${MODEL}`);
  });

  it("names a text that is too long", async () => {
    server.dispatch.script = { refuseWith: new AppError("context_length_exceeded", "too long") };
    const long = await judge(["hello"]);
    expect([long.status, long.body.error.param]).toEqual([400, "input"]);
    expect((await judge(["a", "b"])).body.error.param).toMatch(/^input\[[01]\]$/);
  });

  it("that says neither yes nor no is refused, as are unknown ones", async () => {
    server.dispatch.script.firstToken = () => alternatives(["maybe", 1]);
    const vague = await judge("hello");
    expect([vague.status, vague.body.error.param]).toEqual([400, "model"]);
    expect((await judge("hello", "moderation-judge:gpt-nope")).status).toBe(404);
    expect((await judge("hello", "moderation-judge:")).body.error.param).toBe("model");
    const other = await server.addKey({ models: ["FamilyB-1-8B"] });
    const refused = await moderate({ model: `moderation-judge:${MODEL}`, input: "a" }, other.text);
    expect(refused.status).toBe(403);
  });

  it("uses up the tokens of the key", async () => {
    server.dispatch.script.firstToken = () => alternatives(["no", 1]);
    const { text } = await server.addKey({ limits: { tokensPerMinute: 500 } });
    const refused = await moderate({ model: `moderation-judge:${MODEL}`, input: "a" }, text);
    expect(refused.status).toBe(429);
  });
});

describe("moderation judge: a score", () => {
  it("bounds the word that no alternative is by the least likely one", () => {
    const first = alternatives(["Yes", 0.8], ["perhaps", 0.1], ["I", 0.05]);
    expect(judgeScore(first)).toBeCloseTo(0.8 / 0.85);
    expect(judgeScore(alternatives(["hm", 1]))).toBeUndefined();
  });
});
