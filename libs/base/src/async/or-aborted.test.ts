import { getEventListeners } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { orAborted } from "./or-aborted.ts";

test("abort: the work's result, and no listener is left", async () => {
  const { signal } = new AbortController();
  expect(await orAborted(Promise.resolve(7), signal)).toBe(7);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("abort: the signal's reason, at once where it has aborted before", async () => {
  const stopping = new AbortController();
  const never = new Promise(() => {});
  const stopped = orAborted(never, stopping.signal);
  stopping.abort(new Error("stopped"));
  await expect(stopped).rejects.toThrow("stopped");
  await expect(orAborted(never, stopping.signal)).rejects.toThrow("stopped");
});

test("abort: work that ends within its time for cleaning up gives its result", async () => {
  const signal = AbortSignal.abort(new Error("stopped"));
  expect(await orAborted(delay(5, "cleaned"), signal, 60_000)).toBe("cleaned");
  await expect(orAborted(new Promise(() => {}), signal, 5)).rejects.toThrow("stopped");
});
