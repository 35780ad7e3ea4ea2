import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepConnected } from "./keep-connected.ts";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const backoff = { baseMs: 100, maxMs: 800 };

test("keepConnected: pauses grow until a connection was healthy", async () => {
  const closing = new AbortController();
  const ends: [string, number, number][] = [];
  let connections = 0;
  const running = keepConnected({
    backoff,
    signal: closing.signal,
    connect: async (onOpen) => {
      if (++connections === 4) onOpen();
      return `end ${connections}`;
    },
    onEnd: (end, failures, pauseMs) => void ends.push([end, failures, pauseMs]),
  });
  await vi.advanceTimersByTimeAsync(1_000);
  closing.abort();
  await running;
  const steps = [100, 200, 400, 100, 200];
  for (const [at, [end, failures, pauseMs]] of ends.slice(0, 5).entries()) {
    expect([end, failures]).toEqual([`end ${at + 1}`, at < 3 ? at + 1 : at - 2]);
    expect(pauseMs).toBeGreaterThanOrEqual((steps[at] ?? 0) / 2);
    expect(pauseMs).toBeLessThanOrEqual(steps[at] ?? 0);
  }
  expect(ends.length).toBeGreaterThanOrEqual(4);
});

test("keepConnected: onEnd may set the pause, and beforeNext delays the connection", async () => {
  const closing = new AbortController();
  const held = Promise.withResolvers<void>();
  let connections = 0;
  const running = keepConnected({
    backoff,
    signal: closing.signal,
    onEnd: () => 5_000,
    beforeNext: () => held.promise,
    connect: async () => void connections++,
  });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(connections).toBe(1);
  held.resolve();
  await vi.advanceTimersByTimeAsync(4_999);
  expect(connections).toBe(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(connections).toBe(3);
  closing.abort();
  await running;
});

test("keepConnected: an abort ends a pause at once, and no connection follows", async () => {
  const closing = new AbortController();
  const open = Promise.withResolvers<string>();
  const ends: string[] = [];
  let connections = 0;
  const inPause = keepConnected({
    backoff,
    signal: closing.signal,
    connect: async () => {
      connections++;
      return "short";
    },
    onEnd: (end) => void ends.push(end),
  });
  const connected = keepConnected({
    backoff,
    signal: closing.signal,
    connect: () => open.promise,
    onEnd: (end) => void ends.push(end),
  });
  await vi.advanceTimersByTimeAsync(0);
  closing.abort();
  await inPause;
  open.resolve("long");
  await connected;
  await vi.advanceTimersByTimeAsync(2 * backoff.maxMs);
  expect(ends).toEqual(["short"]);
  expect(connections).toBe(1);
});
