// holds: client-silent-stream

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Heddle } from "./heddle.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const EVENT = `id: 1.0\ndata: {"id":"1.0"}\n\n`;

/** A body that has these texts and then nothing, without an end. */
function silentAfter(...texts: string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (const text of texts) controller.enqueue(new TextEncoder().encode(text));
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/** A client whose n-th request gets the n-th answer, and each later one the last. */
function clientOf(...answers: [() => Promise<Response>, ...(() => Promise<Response>)[]]) {
  const asked: { readonly atMs: number; readonly after: string | undefined }[] = [];
  const answered: typeof fetch = (_url, init) => {
    const { "last-event-id": after } = (init?.headers ?? {}) as Record<string, string>;
    const answer = answers[Math.min(asked.length, answers.length - 1)]!;
    asked.push({ atMs: performance.now(), after });
    return answer();
  };
  return { heddle: new Heddle({ endpoint: "http://master", fetch: answered }), asked };
}

it("stream: one that is silent for 45 s is opened again, after its last event", async () => {
  const { heddle, asked } = clientOf(
    async () => silentAfter(EVENT, ": alive\n\n"),
    async () => silentAfter(`id: 2.0\ndata: {"id":"2.0"}\n\n`),
  );
  const beganMs = performance.now();
  const stream = heddle.events.stream();
  expect((await stream.next()).value).toEqual({ id: "1.0" });
  const next = stream.next();
  await vi.advanceTimersByTimeAsync(44_000);
  expect(asked).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect((await next).value).toEqual({ id: "2.0" });
  expect(asked[1]).toMatchObject({ after: "1.0" });
  expect(asked[1]!.atMs - beganMs).toBeGreaterThanOrEqual(45_000);
  await stream.return();
});

it("stream: ends when no master was there for two minutes, with the reason", async () => {
  const { heddle, asked } = clientOf(
    async () => silentAfter(EVENT),
    () => Promise.reject(new TypeError("refused")),
  );
  const stream = heddle.events.stream();
  await stream.next();
  const beganMs = performance.now();
  const ended = stream.next().then(
    () => "an event",
    (error: Error) => error.name,
  );
  let atMs = 0;
  void ended.then(() => {
    atMs = performance.now();
  });
  await vi.advanceTimersByTimeAsync(115_000);
  expect(atMs).toBe(0);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(await ended).toBe("ConnectionError");
  expect(atMs - beganMs).toBeGreaterThanOrEqual(120_000);
  expect(asked.length).toBeGreaterThan(10);
});
