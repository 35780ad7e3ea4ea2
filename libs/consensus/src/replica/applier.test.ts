import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import type { Entry } from "@heddle/raft/log/entry";
import { expect, test } from "vitest";
import { encodeProposal } from "../proposals/entry-codec.ts";
import { PendingProposals } from "../proposals/pending-proposals.ts";
import { TextMachine } from "../testing/replica-group.ts";
import { Applier } from "./applier.ts";
import type { DurableLog } from "./durable-log.ts";
import { firstMembership, Membership } from "./membership.ts";

const OWN = { node: 1, incarnation: 2 };
const member = { id: 1, name: "m1", address: "m1:1", nonce: "n1" };

/** An applier whose log has a snapshot of entry 5. */
function applier() {
  const machine = new TextMachine();
  const proposals = new PendingProposals<number>();
  const log = {
    snapshotIndex: 5,
    memory: { snapshot: () => ({ index: 5, term: 1 }) },
    compact: async () => undefined,
  };
  const one = new Applier<number>(
    {
      own: OWN,
      log: log as unknown as DurableLog,
      machine,
      proposals,
      changes: new PendingProposals<void>(),
      applyConfChange: () => EMPTY_CONF_STATE,
      onMembersChanged: () => undefined,
    },
    new Membership(firstMembership([member])),
  );
  return { one, machine, proposals, log };
}

function command(index: number, id: Partial<typeof OWN> = {}): Entry {
  const data = encodeProposal({ ...OWN, ...id, sequence: index }, Buffer.from(`${index}`));
  return { term: 3, index, type: "EntryNormal", data };
}

test("applier: entries that a snapshot has overtaken are passed over", async () => {
  const { one, machine } = applier();
  await one.apply([4, 5, 6, 7].map((index) => command(index)));
  await one.apply([command(7), command(8)]);
  await one.apply([command(3)]);
  expect(machine.texts).toEqual(["6", "7", "8"]);
  expect(one.applied).toEqual({ index: 8, term: 3 });
});

test("applier: replies go to this process's own proposals, each its own", async () => {
  const { one, proposals } = applier();
  const replies: string[] = [];
  const waiter = {
    resolve: (reply: number, sequence: number) => replies.push(`${sequence}: ${reply}`),
    reject: () => undefined,
  };
  for (const sequence of [6, 7, 9]) {
    proposals.add(sequence, { type: "EntryNormal", data: new Uint8Array(1) }, 9, waiter);
  }
  const leaderEntry: Entry = { term: 3, index: 8, type: "EntryNormal", data: new Uint8Array(0) };
  const others = [command(6, { node: 2 }), command(7, { incarnation: 1 })];
  await one.apply([...others, leaderEntry, command(9)]);
  expect(replies).toEqual(["9: 3"]);
});

test("applier: a snapshot is of news alone, and bytes count from its beginning", async () => {
  const { one, log } = applier();
  expect(one.beginSnapshot()).toBeUndefined();
  await one.apply([command(6)]);
  expect(one.bytesSinceSnapshot).toBe(17);
  await one.beginSnapshot();
  expect(one.bytesSinceSnapshot).toBe(0);
  log.snapshotIndex = 6;
  expect(one.beginSnapshot()).toBeUndefined();
  one.renewsSnapshot = true;
  expect(one.beginSnapshot()).toBeDefined();
  expect(one.renewsSnapshot).toBe(false);
  one.membership.confState = undefined;
  await one.apply([command(7)]);
  expect(one.beginSnapshot()).toBeUndefined();
});
