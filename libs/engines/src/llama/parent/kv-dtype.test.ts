// holds: engine-kv-dtype

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KvDtype } from "@heddle/contracts/engine";
import { afterAll, beforeAll, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { expectNear, TOP_LOGPROBS } from "../../testing/near-scores.ts";
import { TestSession } from "../testing/test-session.ts";

const ASK = {
  prompt: "the line of the tide ".repeat(8),
  maxTokens: 24,
  topLogprobs: TOP_LOGPROBS,
  ignoreEnd: true,
};

let folder: string;
const sessions = new Map<KvDtype, TestSession>();
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-kv-"));
  const path = join(folder, "tiny.gguf");
  // Of 32 numbers each, the least that a block has.
  await writeTinyModel(path, { heads: 3 });
  for (const kvDtype of ["f16", "q8_0"] as const) {
    const options = { kvDtype, contextTokens: 512, maxSequences: 4 };
    sessions.set(kvDtype, await TestSession.open(options, path));
  }
});
afterAll(async () => {
  for (const session of sessions.values()) await session.close();
  await rm(folder, { recursive: true });
});

it("kv dtype: q8_0 gives scores near those of f16, cached and beside others too", async () => {
  const expected = (await (sessions.get("f16") as TestSession).ask(ASK)).logprobs[0] ?? [];
  const session = sessions.get("q8_0") as TestSession;
  const first = await session.ask(ASK);
  expect(first.logprobs[0]).not.toEqual(expected);
  const [again, other] = await Promise.all([session.ask(ASK), session.ask(ASK)]);
  expect(again.cachedTokens).toBeGreaterThan(0);
  for (const { error, logprobs } of [first, again, other]) {
    expect(error).toBeUndefined();
    expect(expectNear(logprobs[0] ?? [], expected)).toBeGreaterThan(0);
  }
});

it("kv dtype: heads that its blocks do not divide are refused with the remedy", async () => {
  await expect(TestSession.open({ kvDtype: "q8_0" })).rejects.toThrow(/leave kv_dtype out/);
});
