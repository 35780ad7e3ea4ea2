import { spawn } from "node:child_process";
import { once } from "node:events";
import { isProcessAlive } from "@heddle/base/process-alive";
import { eventually } from "@heddle/base/testing/eventually";
import { startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { describe, expect, it } from "vitest";
import type { Answer } from "../../testing/engine-session.ts";
import { TestSession } from "../testing/test-session.ts";

const EOS_TOKEN = 2;
const NO_END = { logitBias: [{ token: EOS_TOKEN, bias: -100 }] };

const ENGINE_MODULE = new URL("../../../dist/llama/parent/llama-engine.js", import.meta.url).href;

/** Loads the model in MODEL, writes the engine process's id and lives until it is killed. */
const PARENT_PROGRAM = `
  const { startLlamaEngine } = await import(process.env.ENGINE);
  const engine = await startLlamaEngine({ modelPath: process.env.MODEL, options: {}, sink() {} });
  process.stdout.write(String(engine.pid));
`;

/** A prompt of `length` tokens that differs from those of other numbers in its first token. */
function promptOf(number: number, length: number): number[] {
  return Array.from({ length }, (_, i) => 10 + ((number * 31 + i * 17 + i * i * number) % 200));
}

async function withSession(
  options: Parameters<typeof TestSession.open>[0],
  body: (session: TestSession) => Promise<void>,
): Promise<void> {
  const session = await TestSession.open(options);
  try {
    await body(session);
  } finally {
    await session.close();
  }
}

// holds: api-cached-tokens, engine-batching
describe("the prefix cache", () => {
  it("serves a prompt's prefix again and gives the same greedy text", async () => {
    await withSession({ maxSequences: 4 }, async (session) => {
      const prompt = promptOf(1, 300);
      const first = await session.ask({ prompt, sampling: NO_END });
      const again = await session.ask({ prompt, sampling: NO_END });
      expect(first.cachedTokens).toBe(0);
      expect(again.cachedTokens).toBe(299);
      expect(again.usage?.cachedTokens).toBe(299);
      expect(again.texts).toEqual(first.texts);
      const branch = await session.ask({ prompt: [...prompt.slice(0, 200), 20, 21, 22] });
      expect(branch.cachedTokens).toBe(200);
      expect(session.engine.load().cachedTokens).toBe(499);
    });
  });

  it("serves a conversation's earlier answer", async () => {
    await withSession({}, async (session) => {
      const prompt = promptOf(2, 50);
      const first = await session.ask({ prompt, maxTokens: 20, sampling: NO_END, topLogprobs: 0 });
      expect(first.usage?.completionTokens).toBe(20);
      // The last token's cell is never computed, so 50 + 19 are there.
      expect(session.engine.load().kvUsedTokens).toBe(69);
    });
  });

  it("computes a prefix once that several requests ask for at the same time", async () => {
    await withSession({ maxSequences: 8 }, async (session) => {
      const shared = promptOf(3, 256);
      const asks = Array.from({ length: 8 }, (_, i) =>
        session.ask({ prompt: [...shared, 20 + i, 40 + i], maxTokens: 4 }),
      );
      const answers = await Promise.all(asks);
      expect(answers.map((answer) => answer.cachedTokens)).toEqual([0, ...Array(7).fill(256)]);
    });
  });

  it("continues a copied prefix with the same text as a recomputed one", async () => {
    const shared = promptOf(3, 256);
    const ask = (session: TestSession, i: number): Promise<Answer> =>
      session.ask({
        prompt: [...shared, 20 + i, 40 + i],
        maxTokens: 20,
        sampling: NO_END,
        topLogprobs: 2,
      });
    const numbers = [0, 1, 2, 3];
    const expected: Answer[] = [];
    await withSession({ maxSequences: 1 }, async (session) => {
      for (const i of numbers) {
        // With one slot, another prompt takes the place of whatever was cached.
        await session.ask({ prompt: promptOf(50 + i, 20), maxTokens: 1 });
        const answer = await ask(session, i);
        expect(answer.cachedTokens).toBe(0);
        expected.push(answer);
      }
    });
    await withSession({ maxSequences: 4 }, async (session) => {
      const answers = await Promise.all(numbers.map((i) => ask(session, i)));
      expect(answers.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 256, 256, 256]);
      for (const i of numbers) expectSameButForTies(answers[i], expected[i]);
    });
  });

  it("shares a prompt among its choices", async () => {
    await withSession({ maxSequences: 4 }, async (session) => {
      const answer = await session.ask({
        prompt: promptOf(1, 200),
        choices: 4,
        maxTokens: 4,
        sampling: NO_END,
      });
      expect(new Set(answer.texts).size).toBe(1);
      // Each choice keeps its prompt and what it sampled, but for the last token.
      expect(session.engine.load().kvUsedTokens).toBe(4 * (200 + 3));
    });
  });

  it("reports how many sequences and tokens it has room for", async () => {
    await withSession({ contextTokens: 500, kvTokens: 4096 }, async (session) => {
      expect(session.engine.load()).toMatchObject({ maxSequences: 8, kvTokens: 8 * 512 });
      expect(session.engine.info.contextTokens).toBe(500);
    });
    await expect(TestSession.open({ contextTokens: 2048, kvTokens: 512 })).rejects.toMatchObject({
      code: "invalid_value",
    });
  });

  it("stays within its memory when many prefixes come", async () => {
    await withSession({ contextTokens: 512, kvTokens: 1024 }, async (session) => {
      for (let i = 0; i < 12; i++) {
        const answer = await session.ask({ prompt: promptOf(i, 200), maxTokens: 8 });
        expect(answer.error).toBeUndefined();
        expect(session.engine.load().kvUsedTokens).toBeLessThanOrEqual(1024);
      }
      const latest = await session.ask({ prompt: promptOf(11, 200), maxTokens: 8 });
      expect(latest.cachedTokens).toBe(199);
    });
  });
});

// holds: engine-batching
describe("many requests at once", () => {
  it("answers 64 of them as it answers each alone", async () => {
    await withSession({ maxSequences: 16 }, async (session) => {
      const ask = (i: number): Promise<Answer> =>
        session.ask({
          prompt: promptOf(i, 20 + i),
          maxTokens: lengthOf(i),
          sampling: NO_END,
          topLogprobs: 2,
        });
      // They end at different times, so that those that continue are moved next to each other.
      const lengthOf = (i: number): number => 4 + ((i * 7) % 24);
      const answers = await Promise.all(Array.from({ length: 64 }, (_, i) => ask(i)));
      for (const [i, answer] of answers.entries()) {
        expect(answer.usage?.completionTokens).toBe(lengthOf(i));
      }
      for (let i = 0; i < 64; i += 7) expectSameButForTies(answers[i], await ask(i));
      expect(session.engine.load()).toMatchObject({ running: 0, waiting: 0 });
    });
  });

  it("takes cells from the youngest under pressure and gives the same greedy text", async () => {
    const ask = (session: TestSession, i: number): Promise<Answer> =>
      session.ask({ prompt: promptOf(i, 60), maxTokens: 250, sampling: NO_END, topLogprobs: 2 });
    const numbers = [0, 1, 2, 3];
    let expected: Answer[] = [];
    await withSession({ maxSequences: 4, contextTokens: 512, kvTokens: 2048 }, async (session) => {
      expected = await Promise.all(numbers.map((i) => ask(session, i)));
    });
    await withSession({ maxSequences: 4, contextTokens: 512, kvTokens: 512 }, async (session) => {
      const answers = await Promise.all(numbers.map((i) => ask(session, i)));
      for (const i of numbers) {
        expect(answers[i]?.error).toBeUndefined();
        expect(answers[i]?.usage?.completionTokens).toBe(250);
        expectSameButForTies(answers[i], expected[i]);
      }
    });
  });

  it("runs more choices than there are slots", async () => {
    await withSession({ maxSequences: 2 }, async (session) => {
      const answer = await session.ask({
        prompt: promptOf(1, 40),
        choices: 7,
        maxTokens: 5,
        sampling: { temperature: 1, seed: 1, ...NO_END },
      });
      expect(answer.reasons).toEqual(Array(7).fill("length"));
      expect(answer.usage).toMatchObject({ promptTokens: 40, completionTokens: 35 });
    });
  });

  it.each(["same key", "other keys"])(
    "gives short requests of %s their turn while longer ones have all slots",
    async (whose) => {
      await withSession({ maxSequences: 4, contextTokens: 4096 }, async (session) => {
        const ask = (i: number, choices: number, maxTokens: number, fairKey: string) => {
          const started = Promise.withResolvers<void>();
          const submit = { fairKey };
          const { answer, id } = session.submit(
            { prompt: promptOf(i, 40), choices, maxTokens, sampling: NO_END, submit },
            ({ type }) => type === "started" && started.resolve(),
          );
          return { id, answer, started: started.promise };
        };
        // Fourteen sequences for four slots; each of them continues for long.
        const long = [ask(1, 12, 3900, "k"), ask(2, 2, 3900, whose === "other keys" ? "l" : "k")];
        let ended = 0;
        for (const { answer } of long) void answer.then(() => ended++);
        await Promise.all(long.map(({ started }) => started));
        for (let i = 3; i < 9; i++) {
          const short = await ask(i, 1, 5, whose === "other keys" ? `key-${i}` : "k").answer;
          expect(short.usage?.completionTokens).toBe(5);
        }
        expect(ended).toBe(0);
        for (const { id } of long) session.engine.cancel(id);
        await Promise.all(long.map(({ answer }) => answer));
      });
    },
  );

  // holds: api-fairness
  it.each([
    ["slots", { maxSequences: 4, contextTokens: 4_096 }, 300, 40],
    // Three of these prompts leave too few cells for one of the short requests, and slots enough.
    ["cells", { maxSequences: 8, contextTokens: 2_048, kvTokens: 2_048 }, 600, 250],
  ])(
    "lets no key hold up another by many long requests that take all %s",
    async (_, limits, ofLong, ofShort) => {
      await withSession(limits, async (session) => {
        const ends: string[] = [];
        const long = Array.from({ length: 12 }, (_, i) => {
          const prompt = promptOf(i, ofLong);
          const started = Promise.withResolvers<void>();
          const { id, answer } = session.submit(
            { prompt, maxTokens: 1_400, sampling: NO_END, submit: { fairKey: "many" } },
            ({ type }) => type === "started" && started.resolve(),
          );
          void answer.then(() => ends.push("long"));
          return { id, answer, started: started.promise };
        });
        await long[2]?.started;
        for (let i = 20; i < 24; i++) {
          const submit = { fairKey: "few" };
          const short = await session.ask({ prompt: promptOf(i, ofShort), maxTokens: 5, submit });
          expect(short.usage?.completionTokens).toBe(5);
          ends.push("short");
        }
        expect(ends).toEqual(["short", "short", "short", "short"]);
        for (const { id } of long) session.engine.cancel(id);
        await Promise.all(long.map(({ answer }) => answer));
      });
    },
  );

  it("gives what had to leave its slot the same greedy text", async () => {
    const choices = { prompt: promptOf(1, 60), choices: 4, maxTokens: 200, sampling: NO_END };
    await withSession({ maxSequences: 4, contextTokens: 512 }, async (session) => {
      const expected = await session.ask({ ...choices, topLogprobs: 2 });
      const started = Promise.withResolvers<void>();
      const { answer } = session.submit({ ...choices, topLogprobs: 2 }, ({ type }) => {
        if (type === "delta") started.resolve();
      });
      await started.promise;
      for (let i = 2; i < 6; i++) await session.ask({ prompt: promptOf(i, 20), maxTokens: 3 });
      const got = await answer;
      expect(got.reasons).toEqual(Array(4).fill("length"));
      expect(got.usage?.completionTokens).toBe(800);
      expectSameButForTies(got, expected);
    });
  });

  it("refuses a request when as many wait as may", async () => {
    await withSession({ maxSequences: 1, maxQueued: 2 }, async (session) => {
      const asks = Array.from({ length: 8 }, (_, i) =>
        session.ask({ prompt: promptOf(i, 30), maxTokens: 200, sampling: NO_END }),
      );
      const answers = await Promise.all(asks);
      const codes = answers.map((answer) => answer.error?.code);
      expect(codes.filter((code) => code === "overloaded").length).toBeGreaterThanOrEqual(5);
      expect(codes).toContain(undefined);
    });
  });

  it("starts a request of higher priority first", async () => {
    await withSession({ maxSequences: 1 }, async (session) => {
      const order: string[] = [];
      const running = Promise.withResolvers<void>();
      const ask = (name: string, priority: number, maxTokens: number) =>
        session.submit(
          {
            prompt: promptOf(name.length, 30),
            maxTokens,
            sampling: NO_END,
            submit: { priority, fairKey: name },
          },
          (event) => {
            if (event.type === "started") order.push(name);
            if (event.type === "delta") running.resolve();
          },
        );
      const first = ask("running", 0, 1_000);
      await running.promise;
      const others = [ask("low", 0, 5), ask("urgent", 5, 5)];
      session.engine.cancel(first.id);
      await Promise.all([first, ...others].map(({ answer }) => answer));
      expect(order).toEqual(["running", "urgent", "low"]);
    });
  });
});

// holds: serving-priorities
describe("priorities in the engine", () => {
  it("an interactive call preempts a batch call, which continues with the same text", async () => {
    await withSession({ maxSequences: 1 }, async (session) => {
      const batch = { prompt: promptOf(1, 40), maxTokens: 300, sampling: NO_END };
      const alone = await session.ask(batch);
      const order: string[] = [];
      const running = Promise.withResolvers<void>();
      const submit = { priority: -1_000, fairKey: "k" };
      const first = session.submit({ ...batch, submit }, (event) => {
        if (event.type === "delta") running.resolve();
        if (event.type === "done") order.push("batch");
      });
      await running.promise;
      const urgent = { priority: 1_000, fairKey: "k" };
      const prompt = promptOf(2, 40);
      const second = session.submit({ prompt, maxTokens: 20, submit: urgent }, (event) => {
        if (event.type === "done") order.push("interactive");
      });
      const [low, high] = await Promise.all([first.answer, second.answer]);
      expect([low.error, high.error]).toEqual([undefined, undefined]);
      expect(order).toEqual(["interactive", "batch"]);
      expect(low.texts).toEqual(alone.texts);
      expect(low.usage?.completionTokens).toBe(300);
    });
  });

  it("calls of one priority do not preempt each other by their order within it", async () => {
    await withSession({ maxSequences: 1 }, async (session) => {
      const order: string[] = [];
      const running = Promise.withResolvers<void>();
      const ask = (name: string, priority: number) =>
        session.submit(
          {
            prompt: promptOf(name.length, 30),
            maxTokens: 100,
            sampling: NO_END,
            submit: { priority, fairKey: "k" },
          },
          (event) => {
            if (event.type === "delta") running.resolve();
            if (event.type === "done") order.push(name);
          },
        ).answer;
      const first = ask("later", -100);
      await running.promise;
      await Promise.all([first, ask("now", 0)]);
      expect(order).toEqual(["later", "now"]);
    });
  });
});

describe("the engine's process", () => {
  // holds: engine-killed
  it("fails its requests with engine_failed when it is killed, and comes back", async () => {
    await withSession({}, async (session) => {
      const prompt = promptOf(1, 30);
      const before = await session.ask({ prompt, maxTokens: 8 });
      const streaming = Promise.withResolvers<void>();
      const { answer } = session.submit(
        { prompt: promptOf(2, 30), maxTokens: 3000, sampling: NO_END },
        (event) => {
          if (event.type === "delta") streaming.resolve();
        },
      );
      await streaming.promise;
      process.kill(session.engine.pid as number, "SIGKILL");
      const failed = await answer;
      expect(failed.error?.code).toBe("engine_failed");
      expect(failed.error?.message).toContain("SIGKILL");
      expect((await session.ask({ prompt })).error?.code).toBe("unavailable");
      expect(session.recoveries).toHaveLength(0);
      expect(session.engine.load()).toMatchObject({ running: 0, maxSequences: 16 });
      const after = await askUntilUp(session, prompt);
      expect(after.texts).toEqual(before.texts);
      expect(session.engine.load().restarts).toBe(1);
      expect(session.recoveries).toHaveLength(1);
    });
  });

  it("is gone after close, and its requests have ended", async () => {
    const session = await TestSession.open();
    const answer = session.ask({ prompt: promptOf(1, 30), maxTokens: 3000, sampling: NO_END });
    const pid = session.engine.pid as number;
    await session.close();
    expect((await answer).error?.code).toBe("unavailable");
    expect(isProcessAlive(pid)).toBe(false);
  });

  it("ends when its parent is killed", async () => {
    const session = await TestSession.open();
    const parent = spawn(process.execPath, ["--input-type=module", "--eval", PARENT_PROGRAM], {
      env: { ...process.env, ENGINE: ENGINE_MODULE, MODEL: session.engine.modelPath },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [output] = (await once(parent.stdout, "data")) as [Buffer];
    const enginePid = Number(output.toString());
    expect(isProcessAlive(enginePid)).toBe(true);
    parent.kill("SIGKILL");
    await eventually(() => !isProcessAlive(enginePid), "the engine has ended");
    await session.close();
  });

  it("does not wait longer for a model than it may", async () => {
    const session = await TestSession.open();
    const { modelPath } = session.engine;
    const slow = startLlamaEngine({
      modelPath,
      options: {},
      sink: () => {},
      child: { timeouts: { startMs: 1 } },
    });
    await expect(slow).rejects.toThrow(/not loaded within 1 ms/);
    await session.close();
  });

  it("stops loading when it is aborted, and leaves no process", async () => {
    const session = await TestSession.open();
    const { modelPath } = session.engine;
    const loading = new AbortController();
    const start = { modelPath, options: {}, sink: () => {}, signal: loading.signal };
    const started = startLlamaEngine(start);
    loading.abort();
    await expect(started).rejects.toMatchObject({ code: "cancelled" });
    await expect(startLlamaEngine(start)).rejects.toMatchObject({ code: "cancelled" });
    await session.close();
  });

  it("does not start without a model, and says why", async () => {
    await expect(TestSession.open({}, "/nowhere/model.gguf")).rejects.toThrow(
      /^the model model\.gguf could not be loaded(?!.*nowhere).*No such file/,
    );
  });

  it("does not start on a GPU that is not there", async () => {
    await expect(TestSession.open({ device: "99" })).rejects.toMatchObject({ code: "unavailable" });
    await expect(TestSession.open({ device: "vulkan" })).rejects.toThrow(
      /device is "cpu", a GPU's index, or several .* not vulkan/,
    );
    await expect(TestSession.open({ maxSequences: 500 })).rejects.toThrow(/1 to 64/);
  });
});

/**
 * Restoring computes in other batch sizes, whose kernels round differently: the texts may part
 * only where the two likeliest tokens were as good as level.
 */
function expectSameButForTies(found: Answer | undefined, expected: Answer | undefined): void {
  const a = found?.logprobs[0] ?? [];
  const b = expected?.logprobs[0] ?? [];
  expect(a.length).toBe(b.length);
  const parting = a.findIndex((entry, i) => entry.token !== b[i]?.token);
  if (parting < 0) return;
  const [best, second] = b[parting]?.top ?? [];
  expect((best?.logprob ?? 0) - (second?.logprob ?? -1)).toBeLessThan(0.02);
}

async function askUntilUp(session: TestSession, prompt: number[]): Promise<Answer> {
  for (;;) {
    const answer = await session.ask({ prompt, maxTokens: 8 });
    if (answer.error?.code !== "unavailable") return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
