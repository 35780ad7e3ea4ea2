import type { ReplicaStatus } from "@heddle/contracts/engine";
import { emptyLoad, encodeReplica } from "@heddle/rpc/node-codec";
import { attachMethod } from "@heddle/rpc/proto";
import { expect, test } from "vitest";
import { AttachedNode } from "./attached-node.ts";

type Report = Parameters<typeof attachMethod.requestSerialize>[0];

/** As a master reads it. */
const read = (report: Report) =>
  attachMethod.requestDeserialize(attachMethod.requestSerialize(report));

/** The slots that a master takes for used which has no call of its own on the worker. */
function used(told: Pick<ReplicaStatus, "others">): number {
  const { register } = read({ register: { nodeId: "w", name: "w" } });
  const node = new AttachedNode(register!, undefined, 0);
  const replica: ReplicaStatus = {
    ...{ deployment: "m", phase: "ready", pulledBytes: 0, totalBytes: 0, message: "" },
    load: { ...emptyLoad, maxSequences: 4, running: 3, waiting: 1 },
    ...told,
  };
  const { heartbeat } = read({ heartbeat: { replicas: [encodeReplica(replica)] } });
  node.onHeartbeat(heartbeat!, 0);
  return node.usedSequences(node.replicas[0]!);
}

test("slots: a report of before this master's calls ended takes none of them", () => {
  expect(used({ others: 0 })).toBe(0);
  expect(used({ others: 2 })).toBe(2);
});

test("slots: where a worker does not tell whose calls they are, all count", () => {
  expect(used({})).toBe(4);
});
