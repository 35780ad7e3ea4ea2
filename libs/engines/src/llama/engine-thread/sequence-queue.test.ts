// holds: engine-batching

import { describe, expect, it } from "vitest";
import { SequenceQueue } from "./sequence-queue.ts";

interface Item {
  readonly name: string;
  readonly fairKey: string;
  readonly priority: number;
}

const item = (name: string, fairKey: string, priority = 0): Item => ({ name, fairKey, priority });
const names = (queue: SequenceQueue<Item>): string[] =>
  queue.ordered(() => 0).map(({ name }) => name);

describe("FairQueue", () => {
  it("keeps the order of arrival within a key", () => {
    const queue = new SequenceQueue<Item>();
    for (const name of ["a", "b", "c"]) queue.push(item(name, "k"));
    expect(names(queue)).toEqual(["a", "b", "c"]);
  });

  it("puts priority before all", () => {
    const queue = new SequenceQueue<Item>();
    queue.push(item("ordinary", "k"));
    queue.push(item("urgent", "other", 1));
    queue.charge("other", 1000);
    expect(names(queue)).toEqual(["urgent", "ordinary"]);
  });

  it("serves the key next that was served the least", () => {
    const queue = new SequenceQueue<Item>();
    queue.push(item("busy", "busy"));
    queue.push(item("idle", "idle"));
    queue.charge("busy", 10);
    expect(names(queue)).toEqual(["idle", "busy"]);
  });

  it("starts a new key level with the least served one, so idling earns nothing", () => {
    const queue = new SequenceQueue<Item>();
    queue.push(item("first", "first"));
    queue.charge("first", 500);
    queue.push(item("late", "late"));
    expect(names(queue)).toEqual(["first", "late"]);
  });

  it("puts a preempted item before its peers", () => {
    const queue = new SequenceQueue<Item>();
    const preempted = item("preempted", "k");
    queue.push(preempted);
    queue.remove(preempted);
    queue.push(item("waiting", "k"));
    queue.pushFront(preempted);
    expect(names(queue)).toEqual(["preempted", "waiting"]);
  });

  it("forgets a key with its last item", () => {
    const queue = new SequenceQueue<Item>();
    const only = item("only", "k");
    queue.push(only);
    queue.charge("k", 900);
    queue.remove(only);
    queue.leave("k");
    queue.push(item("other", "other"));
    queue.push(item("again", "k"));
    expect(names(queue)).toEqual(["other", "again"]);
    expect(queue.size).toBe(2);
  });
});
