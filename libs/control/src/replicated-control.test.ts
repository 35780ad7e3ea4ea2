// holds: state-deterministic

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { HashCheck } from "./hash-check.ts";
import { HashedMap } from "./hashed-map.ts";
import { type LogCommand, ReplicatedControl } from "./replicated-control.ts";

/** A random log of commands that succeed and fail, from a seed. */
function randomLog(seed: number, length: number): LogCommand[] {
  const random = seededRandom(seed);
  const id = () => `key0000${Math.floor(random() * 10)}`;
  return Array.from({ length }, (_, atMs): LogCommand => {
    const [key50, fingerprint] = [Math.floor(random() * 50), "b".repeat(64)];
    const idempotency =
      random() < 0.3 ? { id: `client-a:${key50}`, fingerprint, answer: "" } : undefined;
    if (random() < 0.4) {
      return { type: "control", command: { type: "key.revoke", atMs, id: id() }, idempotency };
    }
    const key = {
      id: id(),
      name: `n${atMs}`,
      hash: "a".repeat(64),
      scopes: ["*"],
      models: [],
      limits: {},
      createdAtMs: atMs,
    };
    return { type: "control", command: { type: "key.create", atMs, key }, idempotency };
  });
}

test("replay: one log gives the same replies and hash, another log another hash", () => {
  const log = randomLog(1, 500);
  const [left, right] = [new ReplicatedControl(), new ReplicatedControl()];
  for (const entry of log) {
    expect(left.apply(entry, 1)).toEqual(right.apply(JSON.parse(JSON.stringify(entry)), 1));
    expect(left.hash).toBe(right.hash);
  }
  const other = new ReplicatedControl();
  for (const entry of randomLog(2, 500)) other.apply(entry, 1);
  expect(other.hash).not.toBe(left.hash);
});

test("restore: a restored state continues like the original", async () => {
  const log = randomLog(3, 400);
  const original = new ReplicatedControl();
  for (const entry of log.slice(0, 200)) original.apply(entry, 1);
  original.apply({ type: "secret.keep", atMs: 0, name: "pepper", value: "p" }, 1);
  const snapshot = original.snapshot();
  for (const entry of log.slice(200)) original.apply(entry, 1);
  const restored = new ReplicatedControl();
  restored.apply(log[0] as LogCommand, 1);
  await restored.restore(snapshot);
  expect(restored.secret("pepper")).toBe("p");
  for (const entry of log.slice(200)) restored.apply(entry, 1);
  expect(restored.hash).toBe(original.hash);
  expect(restored.commands).toBe(original.commands);
  expect([...restored.state.keys]).toEqual([...original.state.keys]);
});

test("restore: a changed, missing or unknown line is refused", async () => {
  const control = new ReplicatedControl();
  for (const entry of randomLog(4, 50)) control.apply(entry, 1);
  const lines = [...control.snapshot()];
  const refused = (changed: string[]) => new ReplicatedControl().restore(changed);
  await expect(refused(lines.slice(0, -1))).rejects.toThrow(/hash/);
  await expect(refused(lines.map((line) => line.replace('"n', '"m')))).rejects.toThrow(/hash/);
  await expect(refused([...lines, '["robots","1",{}]'])).rejects.toThrow(/newer master/);
  await expect(refused(['{"version":2}'])).rejects.toThrow(/newer master/);
});

// holds: state-restore-readers
test("restore: readers see the old state meanwhile; a refused one changes nothing", async () => {
  const [old, other] = [new ReplicatedControl(), new ReplicatedControl()];
  for (const [at, entry] of randomLog(6, 80).entries()) old.apply(entry, at + 1);
  for (const [at, entry] of randomLog(7, 300).entries()) other.apply(entry, at + 1);
  const observed = () => [old.hash, old.index, old.commands, [...old.state.keys.keys()].join()];
  const before = observed();
  const lines = [...other.snapshot()];
  let seen = 0;
  async function* coming(given: readonly string[]) {
    for (const line of given) {
      yield line;
      expect(observed()).toEqual(before);
      seen++;
    }
  }
  await expect(old.restore(coming(lines.slice(0, -1)))).rejects.toThrow(/hash/);
  expect(observed()).toEqual(before);
  await old.restore(coming(lines));
  expect(seen).toBe(2 * lines.length - 1);
  expect(old.hash).toBe(other.hash);
  expect([...old.state.keys]).toEqual([...other.state.keys]);
  const next = randomLog(8, 1)[0] as LogCommand;
  for (const control of [old, other]) control.apply(next, 301);
  expect(old.hash).toBe(other.hash);
});

test("secrets: the first value of a name stays", () => {
  const control = new ReplicatedControl();
  const keep = (value: string) =>
    control.apply({ type: "secret.keep", atMs: 0, name: "pepper", value }, 1);
  expect(keep("a")).toEqual({ ok: true });
  expect(keep("b")).toMatchObject({ code: "conflict" });
  expect(control.secret("pepper")).toBe("a");
});

test("hashed map: the hash depends on the content, not on the history", () => {
  const [left, right] = [new HashedMap<number>(), new HashedMap<number>()];
  left.set("a", 1).set("b", 2).set("a", 3);
  right.set("b", 2).set("c", 9).set("a", 3);
  expect(left.hash).not.toBe(right.hash);
  right.delete("c");
  expect(left.hash).toBe(right.hash);
  left.clear();
  expect(left.hash).toBe(new HashedMap().hash);
});

test("hash check: finds the one of three masters that differs", () => {
  const check = new HashCheck();
  expect(check.report({ node: 1, commands: 1000, hash: "a" }, 3)).toEqual([]);
  expect(check.report({ node: 2, commands: 1000, hash: "b" }, 3)).toEqual([]);
  expect(check.report({ node: 3, commands: 1000, hash: "a" }, 3)).toEqual([2]);
  expect(check.report({ node: 2, commands: 2000, hash: "c" }, 3)).toEqual([]);
});
