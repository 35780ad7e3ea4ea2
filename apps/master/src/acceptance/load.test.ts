import OpenAI, { type APIError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, only, ProcessCluster, TINY } from "../../test/process-cluster.ts";

const messages = [{ role: "user" as const, content: "go on" }];

describe("64 streams at once", () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 2 });
  });
  afterAll(() => cluster.close());

  it("are each whole, ended once, and never mixed up", async () => {
    const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    const answers = [...letters].map(async (letter, i) => {
      const stream = await cluster.openai.chat.completions.create({
        ...{ model: TINY, messages: [{ role: "user", content: `call ${i}` }] },
        ...{ max_tokens: 40 + i, logit_bias: only(letter), stream: true },
        stream_options: { include_usage: true },
      });
      let text = "";
      let usage = 0;
      const reasons: string[] = [];
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? "";
        const reason = chunk.choices[0]?.finish_reason;
        if (reason) reasons.push(reason);
        usage += chunk.usage?.completion_tokens ?? 0;
      }
      return { text, reasons, usage };
    });
    expect(await Promise.all(answers)).toEqual(
      [...letters].map((letter, i) => ({
        ...{ text: letter.repeat(40 + i), reasons: ["length"], usage: 40 + i },
      })),
    );
  });
});

describe("one slot", () => {
  const DEADLINE_MS = 2500;
  // One call runs, one waits in the engine, two wait in the master.
  const ROOM = 4;
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({
      masterFlags: ["--max-queued", "2", "--deadline-ms", `${DEADLINE_MS}`],
      workerFlags: ["--max-sequences", "1"],
    });
  });
  afterAll(() => cluster.close());

  // Far more than one slot can say before the deadline.
  const endless = { model: TINY, messages, n: 16, max_tokens: 4000, logit_bias: NO_END };
  const post = (body: unknown, signal?: AbortSignal) =>
    cluster.request("POST", "/api/v1/chat/completions", body, signal);
  const short = async () => {
    const answer = await cluster.openai.chat.completions.create({
      ...{ model: TINY, messages, max_tokens: 2, logit_bias: only("k") },
    });
    return answer.choices[0]?.message.content;
  };
  const running = () => cluster.metric("heddle_replica_requests_running");
  const runs = (count: number) =>
    cluster.until(async () => (await running()) === count, `${count} calls run`, 50_000);

  it.each([true, false])(
    "is free within a second after its client hangs up, stream %s",
    async (stream) => {
      const freedAfterMs = async () => {
        const abort = new AbortController();
        const call = post({ ...endless, stream }, abort.signal);
        call.catch(() => {});
        if (stream) await (await call).body?.getReader().read();
        await runs(1);
        const next = short();
        abort.abort();
        const startedMs = performance.now();
        expect(await next).toBe("kk");
        const ms = performance.now() - startedMs;
        await runs(0);
        return ms;
      };
      // The machine may stand still meanwhile, but not each time.
      let ms = await freedAfterMs();
      for (let again = 0; again < 4 && ms >= 1_000; again++) ms = await freedAfterMs();
      expect(ms).toBeLessThan(1_000);
    },
  );

  it("refuses what its queues cannot hold with 503 and Retry-After, and then serves on", async () => {
    const queued = () => cluster.metric("heddle_dispatch_queued_requests");
    const oneTooMany = async () => {
      const startedMs = performance.now();
      const aborts = Array.from({ length: ROOM }, () => new AbortController());
      for (const { signal } of aborts) {
        post({ ...endless, stream: true }, signal).catch(() => {});
      }
      const isOver = () => performance.now() - startedMs > DEADLINE_MS;
      const isFull = async () => isOver() || (await queued()) === 2;
      await cluster.until(isFull, "two calls wait in the master", 50_000);
      const answer = await short().catch((error: unknown) => error);
      const ms = performance.now() - startedMs;
      for (const abort of aborts) abort.abort();
      const isIdle = async () => (await queued()) === 0 && (await running()) === 0;
      await cluster.until(isIdle, "no call waits or runs", 50_000);
      return { answer, ms };
    };
    // The machine may stand still until those that fill the queues are over, but not each time.
    let { answer, ms } = await oneTooMany();
    for (let again = 0; again < 4 && ms >= DEADLINE_MS; again++) {
      ({ answer, ms } = await oneTooMany());
    }
    expect(answer).toBeInstanceOf(OpenAI.InternalServerError);
    const error = answer as APIError;
    expect(error).toMatchObject({ status: 503, code: "overloaded" });
    expect(Number(error.headers?.get("retry-after"))).toBeGreaterThan(0);
    expect(await short()).toBe("kk");
  });

  it("ends a call at its deadline: 504 at once, an error event in a stream", async () => {
    const whole = await post(endless);
    expect(whole.status).toBe(504);
    expect(await whole.json()).toMatchObject({ error: { code: "deadline_exceeded" } });
    const stream = await (await post({ ...endless, stream: true })).text();
    expect(stream).toMatch(/event: error\ndata: .*"code":"deadline_exceeded"/);
    expect(stream).not.toContain("[DONE]");
    expect(await short()).toBe("kk");
  });
});
