import { setTimeout as delay } from "node:timers/promises";
import { isProcessAlive } from "@heddle/base/process-alive";
import { describe, expect, it } from "vitest";
import { TestSession } from "../testing/test-session.ts";

const PROMPT = "The quick brown fox jumps over the lazy dog and";
/** Keeps the random model from ending early by chance. */
const NO_END = [{ token: 2, bias: -100 }];
/** Short enough for a test, and far longer than a busy machine keeps a process from answering. */
const LIVENESS = { pingIntervalMs: 200, silenceMs: 10_000 };

describe("an engine process", () => {
  it("that hangs is ended, its requests fail, and another takes its place", async () => {
    const session = await TestSession.open({}, undefined, LIVENESS);
    try {
      const before = await session.ask({ prompt: PROMPT });
      const pid = session.engine.pid as number;
      process.kill(pid, "SIGSTOP");
      const failed = await session.ask({ prompt: PROMPT });
      expect(failed.error?.code).toBe("engine_failed");
      expect(failed.error?.message).toContain("did not respond for 10000 ms");
      expect(isProcessAlive(pid)).toBe(false);
      let after = await session.ask({ prompt: PROMPT });
      while (after.error?.code === "unavailable") {
        await delay(50);
        after = await session.ask({ prompt: PROMPT });
      }
      expect(after.texts).toEqual(before.texts);
      expect(session.engine.load().restarts).toBe(1);
      expect(session.crashes).toEqual([expect.stringContaining("did not respond")]);
    } finally {
      await session.close();
    }
  });

  it("that is idle for longer than the limit and then works is left alone", async () => {
    const session = await TestSession.open({}, undefined, LIVENESS);
    try {
      const pid = session.engine.pid;
      const endMs = performance.now() + 1.5 * LIVENESS.silenceMs;
      await delay(1.2 * LIVENESS.silenceMs);
      while (performance.now() < endMs) {
        const asked = { prompt: PROMPT, maxTokens: 500, sampling: { logitBias: NO_END } };
        expect((await session.ask(asked)).error).toBeUndefined();
      }
      expect(session.engine.pid).toBe(pid);
      expect(session.engine.load().restarts).toBe(0);
    } finally {
      await session.close();
    }
  });
});
