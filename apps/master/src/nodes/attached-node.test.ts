// holds: ops-other-masters

import type { ReplicaStatus } from "@heddle/contracts/engine";
import { emptyLoad, encodeReplica } from "@heddle/rpc/node-codec";
import { attachMethod } from "@heddle/rpc/proto";
import { expect, test } from "vitest";
import { AttachedNode } from "./attached-node.ts";

type Report = Parameters<typeof attachMethod.requestSerialize>[0];

/** As a master reads it. */
const read = (report: Report) =>
  attachMethod.requestDeserialize(attachMethod.requestSerialize(report));

function attachedNode(): AttachedNode {
  const { register } = read({ register: { nodeId: "w", name: "w" } });
  return new AttachedNode(register!, undefined, 0);
}

/** A heartbeat with one replica, ready unless said otherwise. */
function heartbeat(reported: Partial<ReplicaStatus>, rest: Report["heartbeat"] = {}) {
  const replica: ReplicaStatus = {
    deployment: "m",
    phase: "ready",
    pulledBytes: 0,
    totalBytes: 0,
    message: "",
    load: { ...emptyLoad, maxSequences: 4, running: 3, waiting: 1 },
    ...reported,
  };
  return read({ heartbeat: { ...rest, replicas: [encodeReplica(replica)] } }).heartbeat!;
}

/** The slots that a master without calls on the worker counts as used. */
function used(reported: Pick<ReplicaStatus, "others">): number {
  const node = attachedNode();
  node.onHeartbeat(heartbeat(reported), 0);
  return node.usedSequences(node.replicas[0]!);
}

test("heartbeats: figures alone are no news, another phase or refusal is", () => {
  const node = attachedNode();
  const isNews = [
    heartbeat({ phase: "loading" }),
    heartbeat({ phase: "loading", pulledBytes: 9, others: 3 }, { cpuPercent: 7 }),
    heartbeat({}),
    heartbeat({}, { memoryUsedBytes: 5 }),
    heartbeat({}, { refusesLeader: "of an earlier cluster" }),
    heartbeat({}),
    heartbeat({ deployment: "n" }),
  ].map((each) => node.onHeartbeat(each, 0));
  expect(isNews).toEqual([true, false, true, false, true, true, true]);
});

test("heartbeats: readers share one view until the next one, or until silence", () => {
  const node = attachedNode();
  node.onHeartbeat(heartbeat({}, { cpuPercent: 1 }), 0);
  const first = node.view(0);
  expect(node.view(0)).toBe(first);
  node.onHeartbeat(heartbeat({}, { cpuPercent: 2 }), 0);
  expect([first.cpuPercent, node.view(0).cpuPercent]).toEqual([1, 2]);
  node.silentIntervals = 4;
  expect(node.view(0).state).toBe("suspect");
});

test("slots: a report from before this master's calls ended takes none", () => {
  expect(used({ others: 0 })).toBe(0);
  expect(used({ others: 2 })).toBe(2);
});

test("slots: calls without an owner in the report all count", () => {
  expect(used({})).toBe(4);
});
