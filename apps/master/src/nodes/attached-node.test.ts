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

/** The slots that a master without calls on the worker counts as used. */
function used(reported: Pick<ReplicaStatus, "others">): number {
  const { register } = read({ register: { nodeId: "w", name: "w" } });
  const node = new AttachedNode(register!, undefined, 0);
  const replica: ReplicaStatus = {
    deployment: "m",
    phase: "ready",
    pulledBytes: 0,
    totalBytes: 0,
    message: "",
    load: { ...emptyLoad, maxSequences: 4, running: 3, waiting: 1 },
    ...reported,
  };
  const { heartbeat } = read({ heartbeat: { replicas: [encodeReplica(replica)] } });
  node.onHeartbeat(heartbeat!, 0);
  return node.usedSequences(node.replicas[0]!);
}

test("slots: a report from before this master's calls ended takes none", () => {
  expect(used({ others: 0 })).toBe(0);
  expect(used({ others: 2 })).toBe(2);
});

test("slots: calls without an owner in the report all count", () => {
  expect(used({})).toBe(4);
});
