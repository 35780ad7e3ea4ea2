// holds: ops-restore-nodes

import { nextClusterId } from "@heddle/base/cluster-id";
import { eventually } from "@heddle/base/testing/eventually";
import { Attachments } from "@heddle/node-agent/masters/attachments";
import { KnownMasters } from "@heddle/node-agent/masters/known-masters";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { afterEach, beforeEach, expect, test } from "vitest";
import { clusterToken, TestCluster } from "../../test/test-cluster.ts";
import type { ControlGroup } from "../control-plane/control-group.ts";

// Masters from before and after a restore run at once, and a node is attached to both.

const formed = "0123456789abcdef0123456789abcdef";
let before: TestCluster;
let after: TestCluster;
let attachments: Attachments | undefined;

beforeEach(async () => {
  [before, after] = [new TestCluster(), new TestCluster()];
  await Promise.all([before.startMaster(), after.startMaster()]);
});

afterEach(async () => {
  await attachments?.close();
  await Promise.all([before.close(), after.close()]);
});

function isOf(master: TestCluster, cluster: string): void {
  const members = [{ name: "master-1", address: master.link.grpcAddress }];
  const status = () => ({ members, cluster });
  master.control.group = { status } as unknown as ControlGroup;
}

/** Attaches as a new process of the node with the old one's kept identity. */
function attach(): void {
  const followed = new FollowedCluster(before.folder);
  const given = [before.link.grpcAddress, after.link.grpcAddress];
  attachments = new Attachments({
    masters: new KnownMasters({ given, staysHere: true, followed }),
    credentials: { clusterToken, node: { role: "worker", name: "w" } },
    register: () => ({
      nodeId: "w",
      incarnation: "1",
      kind: "NODE_KIND_WORKER" as const,
      name: "w",
      address: "127.0.0.1:1",
      version: "1",
    }),
    followed,
    heartbeat: () => ({ replicas: [] }),
    log: { info: () => {}, warn: () => {}, error: () => {} },
  });
}

const stateAt = ({ link }: TestCluster) => link.directory.nodes()[0]?.state;

test("refusing: a node works for the later incarnation, and gives the other a reason", async () => {
  isOf(before, formed);
  isOf(after, nextClusterId(formed, 20, "ab"));
  attach();
  await eventually(() => stateAt(before) === "refusing", "it is known which has ended");
  await eventually(() => stateAt(after) === "ready", "it works for the other");
  expect(before.link.directory.nodes()[0]?.refusesLeader).toMatch(/a later incarnation/);
  expect(after.link.directory.nodes()[0]?.refusesLeader).toBeUndefined();
});

test("refusing: of two restores from one backup, the first to attach is kept", async () => {
  isOf(after, nextClusterId(formed, 20, "ab"));
  const followed = new FollowedCluster(before.folder);
  await followed.follow(nextClusterId(formed, 20, "ab"));
  isOf(before, nextClusterId(formed, 20, "cd"));
  attach();
  await eventually(() => stateAt(before) === "refusing", "the other is refused");
  await eventually(() => stateAt(after) === "ready", "the first is not");
  expect(before.link.directory.nodes()[0]?.refusesLeader).toMatch(/at the same moment/);
});
