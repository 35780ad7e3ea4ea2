// holds: consensus-removed-voter

import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import { raftService } from "@heddle/rpc/proto";
import { bindServer } from "@heddle/rpc/server";
import { afterEach, describe, expect, it } from "vitest";
import { RemovalWatch } from "./removal-watch.ts";

// Member 1 asks the others, who answer over gRPC as masters do.

const credentials = { clusterToken: "a-token-for-tests-only" };
const identity = {
  version: 1,
  name: "m1",
  nonce: "n1",
  cluster: "c",
  id: 1,
  incarnation: 1,
} as const;
type Answer = (error: null, reply: IntroductionReply) => void;
let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

const memberOf = (id: number, address = "") => ({ id, name: `m${id}`, address, nonce: `n${id}` });
const without = { cluster: "c", id: 0, members: [2, 3].map((id) => memberOf(id)), lastId: 3 };

/** Whether a member that receives these answers counts as removed. */
async function confirmedBy(...replies: IntroductionReply[]): Promise<boolean> {
  const others = await Promise.all(
    replies.map(async (reply, at) => {
      const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials });
      closing.push(() => bound.server.forceShutdown());
      const introduce = (_call: unknown, answer: Answer) => answer(null, reply);
      bound.server.addService(raftService, { introduce });
      return memberOf(at + 2, bound.address);
    }),
  );
  const watch = new RemovalWatch({
    identity,
    credentials,
    hasLeader: () => true,
    others: () => others,
    onRemoved: () => undefined,
  });
  closing.push(() => watch.stop());
  return watch.isConfirmed();
}

describe("a member that asks whether it was removed", () => {
  it("believes a voter, not a learner, which may apply the removal earlier", async () => {
    expect(await confirmedBy({ ...without, votes: false })).toBe(false);
    expect(await confirmedBy({ ...without, votes: false }, { ...without, votes: true })).toBe(true);
  });

  it("believes no other group, and none that has not caught up or knows it still", async () => {
    const known = { ...without, members: [memberOf(1), memberOf(2)] };
    for (const reply of [
      known,
      { ...without, cluster: "another" },
      { ...without, members: [] },
      { ...without, lastId: 0 },
    ]) {
      expect(await confirmedBy({ ...reply, votes: true })).toBe(false);
    }
    expect(await confirmedBy()).toBe(false);
  });
});
