// holds: consensus-membership-durable

import type { Message } from "@heddle/raft/core/message";
import { describe, expect, it } from "vitest";
import { ReplicaGroup, type TestMember } from "../testing/replica-group.ts";

/** What a leader proposes to leave a joint configuration. */
const carriesLeave = ({ type, entries }: Message): boolean =>
  type === "MsgApp" && entries.some((entry) => entry.type !== "EntryNormal" && !entry.data.length);

/** A group of five whose leader and first follower stay when the other three are removed at once. */
async function shrinkingGroup(options = {}) {
  const group = new ReplicaGroup(5, options);
  await group.startAll();
  const leader = await group.elect();
  const [stays, ...gone] = [...group.members.values()].filter((member) => member !== leader);
  if (!stays) throw new Error("there is no follower");
  const removal = gone.map(({ member }) => ({ type: "removeNode" as const, nodeId: member.id }));
  return { group, leader, stays, gone, removal };
}

const idsOf = ({ running }: TestMember) => running.members.map(({ id }) => id);

/** Turns in which the change goes as far as its joint configuration, which is not left. */
const TURNS_TO_ENTER = 20;

describe("a change of several members at once", () => {
  it("is answered when the joint configuration is left; until then all are members", async () => {
    const { group, leader, stays, gone, removal } = await shrinkingGroup();
    group.drop = carriesLeave;
    let isAnswered = false;
    const changed = leader.running.changeMembers(removal).finally(() => {
      isAnswered = true;
    });
    await group.turns(TURNS_TO_ENTER);
    expect(isAnswered).toBe(false);
    for (const member of [leader, stays, ...gone]) {
      const { members } = member.running.status();
      expect(members.map(({ votes }) => votes)).toEqual([true, true, true, true, true]);
    }
    group.drop = () => false;
    await group.settle(changed);
    const left = [leader, stays].map(({ member }) => member.id).sort();
    expect(idsOf(leader)).toEqual(left);
    // They are needed no more.
    for (const { member } of gone) group.crash(member.id);
    expect(await group.settle(leader.running.propose(Buffer.from("two of two")))).toBe(1);
    await group.until("the other one knows", () => idsOf(stays).length === 2);
  });

  it("is answered though the leader changes before the joint configuration is left", async () => {
    const { group, leader, stays, removal } = await shrinkingGroup();
    const [other, ...two] = removal;
    group.drop = carriesLeave;
    const changed = stays.running.changeMembers(two);
    await group.turns(TURNS_TO_ENTER);
    expect(idsOf(stays)).toHaveLength(5);
    group.crash(leader.member.id);
    group.drop = () => false;
    await group.settle(changed);
    const left = [leader.member.id, stays.member.id, other?.nodeId as number];
    expect(idsOf(stays)).toEqual(left.sort());
  });

  it("that is not complete in time is said to be so, and whom not to stop", async () => {
    const { group, leader, stays, removal } = await shrinkingGroup({ requestTicks: 30 });
    group.drop = carriesLeave;
    await expect(group.settle(leader.running.changeMembers(removal))).rejects.toMatchObject({
      code: "outcome_unknown",
      message: expect.stringMatching(
        /is made but was not seen to be complete: .* stop none that was removed while `heddle cluster members` still lists it/,
      ),
    });
    group.drop = () => false;
    await group.until(
      "it is complete",
      () => idsOf(leader).length === 2 && idsOf(stays).length === 2,
    );
  });

  it("is rejected as incomplete when its member stops", async () => {
    const { group, leader, removal } = await shrinkingGroup();
    group.drop = carriesLeave;
    const changed = leader.running.changeMembers(removal);
    changed.catch(() => undefined);
    await group.turns(TURNS_TO_ENTER);
    group.crash(leader.member.id);
    await expect(changed).rejects.toMatchObject({
      code: "outcome_unknown",
      message: expect.stringContaining("not seen to be complete: this master is shutting down"),
    });
  });

  it("survives a restart of all from snapshots of the joint configuration", async () => {
    const { group, leader, stays, removal } = await shrinkingGroup();
    group.drop = carriesLeave;
    leader.running.changeMembers(removal).catch(() => undefined);
    await group.turns(TURNS_TO_ENTER);
    for (const { running } of group.members.values()) await group.settle(running.takeSnapshot());
    for (const id of group.members.keys()) group.crash(id);
    group.drop = () => false;
    await group.startAll();
    await group.until("those that stay know that it is complete", () =>
      [leader, stays].every((member) => idsOf(member).length === 2),
    );
  });
});
