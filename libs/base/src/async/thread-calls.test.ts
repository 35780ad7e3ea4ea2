import { getEventListeners } from "node:events";
import { MessageChannel, type Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import { afterEach, expect, test } from "vitest";
import { answerCalls, ThreadCalls } from "./thread-calls.ts";

interface Api {
  double(argument: number, signal: AbortSignal): Promise<number>;
  fail(argument: unknown, signal: AbortSignal): Promise<void>;
  hang(argument: unknown, signal: AbortSignal): Promise<void>;
}

const opened: { close(): void }[] = [];

afterEach(() => {
  for (const each of opened.splice(0)) each.close();
});

/** Both sides in this thread, over ports like a worker's. */
function sides() {
  const { port1, port2 } = new MessageChannel();
  opened.push(port1, port2);
  const given: unknown[] = [];
  answerCalls<Api>(port2, {
    double: async (n) => 2 * n,
    fail: async () => {
      throw new AppError("not_found", "none is there");
    },
    hang: (_, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          given.push(signal.reason.code);
          reject(signal.reason);
        });
      }),
  });
  const calls = new ThreadCalls<Api>(port1 as unknown as Worker, "the shard");
  return { calls, port: port1, given };
}

test("calls: each gets its own answer, in whatever order they arrive", async () => {
  const { calls } = sides();
  const caller = new AbortController();
  const hanging = calls.call("hang", undefined, caller.signal);
  expect(await Promise.all([calls.call("double", 2), calls.call("double", 5)])).toEqual([4, 10]);
  caller.abort();
  await expect(hanging).rejects.toMatchObject({ code: "cancelled" });
});

test("calls: an error has its code and text", async () => {
  const expected = { code: "not_found", message: "none is there" };
  await expect(sides().calls.call("fail", undefined)).rejects.toMatchObject(expected);
});

test("calls: an ended one leaves no listener on its signal", async () => {
  const { calls } = sides();
  const { signal } = new AbortController();
  for (let n = 0; n < 3; n++) await calls.call("double", n, signal);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("calls: an abort reaches its own call only", async () => {
  const { calls, given } = sides();
  const [first, second] = [new AbortController(), new AbortController()];
  const both = [first, second].map(({ signal }) => calls.call("hang", undefined, signal));
  second.abort();
  await expect(both[1]).rejects.toMatchObject({ code: "cancelled" });
  expect(given).toEqual(["cancelled"]);
  first.abort();
  await expect(both[0]).rejects.toMatchObject({ code: "cancelled" });
  const late = calls.call("double", 1, AbortSignal.abort(new AppError("cancelled", "before")));
  await expect(late).rejects.toThrow(/before/);
});

test("calls: when the thread has ended, open and later ones reject", async () => {
  const { calls, port } = sides();
  const hanging = calls.call("hang", undefined);
  expect(calls.ended).toBe(false);
  port.emit("error", new Error("broken"));
  port.emit("exit", new Event("exit"));
  const gone = {
    code: "unavailable",
    message: expect.stringMatching(/the shard is gone: .*broken/),
  };
  await expect(hanging).rejects.toMatchObject(gone);
  await expect(calls.call("double", 1)).rejects.toMatchObject(gone);
  expect(calls.ended).toBe(true);
});

test("calls: 8,192 may be open", async () => {
  const { calls, port } = sides();
  const open = Array.from({ length: 8_192 }, () => calls.call("hang", undefined));
  await expect(calls.call("hang", undefined)).rejects.toMatchObject({ code: "overloaded" });
  port.emit("exit", new Event("exit"));
  const ends = await Promise.allSettled(open);
  expect(ends.every(({ status }) => status === "rejected")).toBe(true);
});
