// holds: consensus-transport

import { createMessage, type Message } from "@heddle/raft/core/message";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { decodeMessages } from "./message-codec.ts";
import { type FrameSink, PeerLink } from "./peer-link.ts";

class RecordingSink implements FrameSink {
  readonly frames: Message[][] = [];
  takes = true;
  drained: () => void = () => undefined;

  write(frame: Buffer): boolean {
    this.frames.push(decodeMessages(frame.subarray(5)));
    return this.takes;
  }

  once(_event: "drain", listener: () => void): void {
    this.drained = listener;
  }

  readonly endings: string[] = [];

  end(): void {
    this.endings.push("ended");
  }

  destroy(): void {
    this.endings.push("destroyed");
  }
}

const entry = { type: "EntryNormal" as const, term: 1, index: 6, data: new Uint8Array(3) };
const append = (commit: number, entries = [entry]) =>
  createMessage({ type: "MsgApp", to: 2, from: 1, term: 1, index: 5, commit, entries });
const commitOnly = (commit: number) => append(commit, []);
const turn = () => new Promise((resolve) => process.nextTick(resolve));

let sink: RecordingSink;
let link: PeerLink;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  sink = new RecordingSink();
  link = new PeerLink();
  link.attach(sink);
});
afterEach(() => {
  vi.useRealTimers();
});

test("peer link: messages of one turn leave in one frame", async () => {
  link.send([append(4)]);
  link.send([createMessage({ type: "MsgHeartbeat", to: 2, from: 1 })]);
  expect(sink.frames).toEqual([]);
  await turn();
  expect(sink.frames.map((frame) => frame.map(({ type }) => type))).toEqual([
    ["MsgApp", "MsgHeartbeat"],
  ]);
});

test("peer link: a commit index alone travels with the next append", async () => {
  link.send([commitOnly(4)]);
  await turn();
  expect(sink.frames).toEqual([]);
  link.send([append(4)]);
  await turn();
  expect(sink.frames).toHaveLength(1);
  expect(sink.frames[0]?.map(({ entries }) => entries.length)).toEqual([1]);
});

test("peer link: a commit index alone leaves after a short delay without an append", async () => {
  link.send([commitOnly(4)]);
  await turn();
  vi.advanceTimersByTime(10);
  expect(sink.frames[0]?.map(({ commit }) => commit)).toEqual([4]);
});

test("link: a commit index that no later append carries is kept", async () => {
  link.send([commitOnly(4)]);
  link.send([append(3)]);
  await turn();
  expect(sink.frames[0]?.map(({ commit }) => commit)).toEqual([4, 3]);
});

test("peer link: sends nothing under back-pressure, keeps nothing while disconnected", async () => {
  sink.takes = false;
  link.send([append(1)]);
  await turn();
  link.send([append(2)]);
  await turn();
  expect(sink.frames).toHaveLength(1);
  sink.drained();
  expect(sink.frames).toHaveLength(2);
  link.detach();
  expect(link.send([append(3)])).toBe(false);
});

test("peer link: messages beyond the queue's bound are dropped", () => {
  const many = Array.from({ length: 4_096 }, () => append(1));
  expect(link.send(many)).toBe(true);
  expect(link.send([append(1)])).toBe(false);
});

test("link: queued messages are sent to a removed member before the end", () => {
  link.send([commitOnly(5)]);
  expect(sink.frames).toEqual([]);
  link.finish();
  expect(sink.frames).toHaveLength(1);
  expect(sink.frames[0]).toMatchObject([{ commit: 5 }]);
  expect(sink.endings).toEqual(["ended"]);
  expect(link.connected).toBe(false);
  expect(link.send([append(6)])).toBe(false);
});

test("peer link: a replaced or cut connection ends at once and drops its queue", () => {
  link.send([commitOnly(5)]);
  link.detach();
  expect(sink.frames).toEqual([]);
  expect(sink.endings).toEqual(["destroyed"]);
});
