// holds: access-cache-salt

import { expect, it } from "vitest";
import { TestSession } from "../testing/test-session.ts";

const PROMPT = "ABCDEFGH".repeat(30);
const LAYOUTS = [
  { layout: "slots", options: {} },
  { layout: "one pool", options: { maxSequences: 6, contextTokens: 2048, kvTokens: 6144 } },
];

it.each(LAYOUTS)(
  "salts: prefixes serve requests of their salt alone: $layout",
  async ({ options }) => {
    const session = await TestSession.open({ maxSequences: 4, contextTokens: 1024, ...options });
    const cachedOf = async (cacheSalt: string) => {
      const answer = await session.ask({ prompt: PROMPT, maxTokens: 1, submit: { cacheSalt } });
      expect(answer.error).toBeUndefined();
      return answer.cachedTokens;
    };
    try {
      expect(await cachedOf("a")).toBe(0);
      expect(await cachedOf("b")).toBe(0);
      expect(await cachedOf("b")).toBeGreaterThan(200);
      expect(await cachedOf("")).toBe(0);
      // Nor does one wait for what another of the same prompt computes at the time.
      const beside = await Promise.all(["c", "d"].map(cachedOf));
      expect(beside).toEqual([0, 0]);
    } finally {
      await session.close();
    }
  },
);
