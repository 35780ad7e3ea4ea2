import { createMessage } from "@heddle/raft/core/message";
import { describe, expect, it } from "vitest";
import { ReplicaGroup, type TestMember, TextMachine } from "../testing/replica-group.ts";
import { DurableLog } from "./durable-log.ts";

const bytes = (text: string) => Buffer.from(text);

async function groupOf(count: number, options = {}) {
  const group = new ReplicaGroup(count, options);
  await group.startAll();
  const leader = await group.elect();
  const others = [...group.members.values()].filter((member) => member !== leader);
  return { group, leader, others };
}

describe("a replica", () => {
  // holds: consensus-forward
  it("answers proposals in order, on the leader and through a follower", async () => {
    const { group, leader, others } = await groupOf(3);
    const replies = [1, 2, 3].map((i) => leader.running.propose(bytes(`a${i}`)));
    expect(await group.settle(Promise.all(replies))).toEqual([1, 2, 3]);
    expect(await group.settle(others[0]?.running.propose(bytes("b")) as Promise<number>)).toBe(4);
    await group.until("all have applied all", () =>
      [...group.members.values()].every(({ machine }) => machine.texts.join() === "a1,a2,a3,b"),
    );
  });

  // holds: consensus-durable-first
  it("acknowledges nothing that its disk has not confirmed", async () => {
    const { group, leader, others } = await groupOf(3);
    for (const { files } of others) files.hold();
    group.sent.length = 0;
    let answered = false;
    const reply = leader.running.propose(bytes("x")).finally(() => {
      answered = true;
    });
    await group.turns(3);
    const index = leader.running.status().commit + 1;
    const acknowledged = group.sent.filter(
      ({ type, index: upTo, reject }) => type === "MsgAppResp" && !reject && upTo >= index,
    );
    expect(acknowledged).toEqual([]);
    expect(answered).toBe(false);
    for (const { files } of others) files.release();
    expect(await group.settle(reply)).toBe(1);
  });

  // holds: consensus-durable-first
  it("keeps what it answered over crashes of all, and a torn end does no harm", async () => {
    const { group, leader } = await groupOf(3);
    for (let i = 0; i < 20; i++) await group.settle(leader.running.propose(bytes(`${i}`)));
    for (const id of group.members.keys()) group.crash(id);
    await group.startAll();
    const next = await group.elect();
    await group.settle(next.running.readBarrier());
    expect(next.machine.texts).toEqual(Array.from({ length: 20 }, (_, i) => `${i}`));
  });

  // holds: consensus-unknown-outcome
  it("says that an outcome is unknown when leadership is lost meanwhile", async () => {
    const { group, leader, others } = await groupOf(3);
    const cut = leader.member.id;
    group.drop = ({ from, to }) => from === cut || to === cut;
    const lost = leader.running.propose(bytes("lost"));
    lost.catch(() => undefined);
    await group.until("another one leads", () =>
      others.some(({ replica }) => replica?.status().role === "leader"),
    );
    const next = others.find(({ replica }) => replica?.status().role === "leader");
    await group.settle(next?.running.propose(bytes("kept")) as Promise<number>);
    group.drop = () => false;
    await expect(group.settle(lost)).rejects.toMatchObject({
      code: "outcome_unknown",
      message: expect.stringMatching(/unknown whether the change was made: the leader changed/),
    });
    await group.until("the old leader follows", () => leader.machine.texts.join() === "kept");
  });

  // holds: consensus-leader-applied
  it("leads only when it has applied what the leader before it has answered", async () => {
    const { group, leader, others } = await groupOf(3);
    const index = leader.running.status().commit + 1;
    // The others have the entry on their disks, and never learn from this leader that it is committed.
    group.drop = ({ commit }) => commit >= index;
    expect(await group.settle(leader.running.propose(bytes("plan")))).toBe(1);
    group.crash(leader.member.id);
    group.drop = ({ type }) => type === "MsgAppResp";
    const next = await group.elect();
    await group.turns(3);
    expect(next.running.status()).toMatchObject({ role: "leader", isActiveLeader: false });
    expect(next.machine.texts).toEqual([]);
    group.drop = () => false;
    await group.until("it leads", () => next.running.status().isActiveLeader);
    expect(next.machine.texts).toEqual(["plan"]);
    expect(others.filter(({ running }) => running.status().isActiveLeader)).toEqual([next]);
  });

  // holds: ops-reachable
  it("status: members that answer are active at each tick, also after an election", async () => {
    const { group, leader, others } = await groupOf(3);
    const activeNow = (member: TestMember) =>
      member.running.status().members.map(({ active }) => active);
    for (let tick = 0; tick < 60; tick++) {
      // Sampled before the heartbeats of these ticks are answered; three ticks a turn meet each quorum check.
      for (const at of ["first", "second"]) {
        leader.replica?.tick();
        expect(activeNow(leader), `turn ${tick}, ${at} tick`).not.toContain(false);
      }
      await group.turns(1);
    }
    const lost = leader.member.id;
    group.drop = ({ from, to }) => from === lost || to === lost;
    const next = () => others.find(({ replica }) => replica?.status().role === "leader");
    await group.until("another one leads", () => next() !== undefined);
    const isActive = () =>
      next()
        ?.running.status()
        .members.find(({ id }) => id === lost)?.active;
    // It has had no time to answer the new leader: that is not known yet.
    expect(isActive()).toBe(undefined);
    await group.until("the lost one is found inactive", () => isActive() === false, 100);
    group.drop = () => false;
    await group.until("it is back", () => isActive() === true, 100);
  });

  it("refuses a change, which was then not made, while there is no leader", async () => {
    const { group, others } = await groupOf(3, { requestTicks: 20 });
    for (const { member } of others) group.crash(member.id);
    const [only] = [...group.members.values()].filter(({ replica }) => replica);
    await group.until("it steps down", () => only?.running.status().leader === undefined);
    const refused = only?.running.propose(bytes("x")) as Promise<number>;
    await expect(group.settle(refused)).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/no leader.*Nothing was changed/),
    });
    await expect(group.settle(only?.running.readBarrier() as Promise<void>)).rejects.toMatchObject({
      code: "unavailable",
    });
  });

  it("reads what was committed before, and not while a majority is silent", async () => {
    const { group, leader, others } = await groupOf(3);
    await group.settle(leader.running.propose(bytes("seen")));
    const follower = others[0];
    await group.settle(follower?.running.readBarrier() as Promise<void>);
    expect(follower?.machine.texts).toEqual(["seen"]);
    group.drop = () => true;
    let answered = false;
    const read = leader.running.readBarrier().then(() => {
      answered = true;
    });
    await group.turns(5);
    expect(answered).toBe(false);
    group.drop = () => false;
    await group.settle(read);
  });

  // holds: consensus-durable-first
  it("ends when its disk fails, and acknowledges nothing", async () => {
    const { group, leader, others } = await groupOf(3);
    const victim = others[0];
    if (!victim) throw new Error("there is no follower");
    victim.files.fail();
    await group.settle(leader.running.propose(bytes("x")));
    await group.until("it ends", () => victim.fatal !== undefined);
    expect(victim.fatal?.message).toMatch(/cannot write: (EIO|ENOSPC)/);
    await expect(victim.running.propose(bytes("y"))).rejects.toMatchObject({
      code: "server_error",
    });
  });

  // holds: consensus-lost-log
  it("ends if its log lost acknowledged entries; the transport gets no error", async () => {
    const { group, leader, others } = await groupOf(3);
    const victim = others[0];
    if (!victim) throw new Error("there is no follower");
    await group.settle(leader.running.propose(bytes("kept")));
    const { commit, term } = leader.running.status();
    // The heartbeat that reaches a member which restarted without the end of its log.
    const heartbeat = { type: "MsgHeartbeat" as const, from: leader.member.id, term };
    const { id } = victim.member;
    victim.running.receive([createMessage({ ...heartbeat, to: id, commit: commit + 5 })]);
    expect(victim.fatal).toMatchObject({
      code: "server_error",
      message: expect.stringMatching(
        /^the log in data ends at entry \d+, .* entries up to \d+: .*Empty the directory and start again/,
      ),
      cause: { message: expect.stringContaining("raft invariant broken") },
    });
    await expect(victim.running.propose(bytes("y"))).rejects.toBe(victim.fatal);
    expect(await group.settle(leader.running.propose(bytes("without it")))).toBe(2);
  });

  it("catches up by snapshot, and by the log that is left after one", async () => {
    const { group, leader, others } = await groupOf(3, { snapshotEntries: 10 });
    const behind = others[0];
    if (!behind) throw new Error("there is no follower");
    group.crash(behind.member.id);
    for (let i = 0; i < 50; i++) await group.settle(leader.running.propose(bytes(`${i}`)));
    await group.until("a snapshot is taken", () => leader.running.status().snapshotIndex > 30);
    await group.start(behind.member.id);
    await group.until("it has caught up", () => behind.machine.texts.length === 50);
    expect(behind.running.status().snapshotIndex).toBeGreaterThan(30);
    group.crash(behind.member.id);
    await group.start(behind.member.id);
    await group.until("it has it again", () => behind.machine.texts.length === 50);
  });

  // holds: consensus-snapshot-bytes
  it("takes a snapshot by the bytes of what it applied", async () => {
    const group = new ReplicaGroup(1, { snapshotBytes: 10_000 });
    await group.startAll();
    const only = await group.elect();
    const propose = (size: number) =>
      group.settle(only.running.propose(new Uint8Array(size).fill(0x61)));
    await propose(9_000);
    await group.turns(5);
    const { snapshotIndex: first } = only.running.status();
    await propose(2_000);
    await group.until("a snapshot is taken", () => only.running.status().snapshotIndex > first);
    const { snapshotIndex: second } = only.running.status();
    await propose(5_000);
    await group.turns(5);
    expect(only.running.status().snapshotIndex).toBe(second);
  });

  it("starts from the snapshot before where the newest is damaged", async () => {
    const group = new ReplicaGroup(1, { snapshotEntries: 10 });
    await group.startAll();
    const only = await group.elect();
    for (let i = 0; i < 35; i++) await group.settle(only.running.propose(bytes(`${i}`)));
    await only.running.takeSnapshot();
    group.crash(1);
    const newest = only.files.paths().findLast((path) => path.endsWith(".snap")) as string;
    only.files.flipBit(newest, 200, 0);
    await group.start(1);
    await group.until("all is there", () => only.machine.texts.length === 35);
    expect(only.machine.texts.at(-1)).toBe("34");
  });

  it("takes in a learner, makes it a voter, and lets go of a member", async () => {
    const { group, leader } = await groupOf(3, { snapshotEntries: 10 });
    for (let i = 0; i < 30; i++) await group.settle(leader.running.propose(bytes(`${i}`)));
    const joined = await group.start(4);
    const changes = [{ type: "addLearnerNode" as const, nodeId: 4 }];
    await group.settle(leader.running.changeMembers(changes, [joined.member]));
    await group.until("it is a voter", () =>
      joined.running.status().members.some(({ id, votes }) => id === 4 && votes),
    );
    expect(joined.machine.texts).toHaveLength(30);
    const gone = [...group.members.keys()].find((id) => id !== leader.member.id && id !== 4);
    const removal = [{ type: "removeNode" as const, nodeId: gone as number }];
    await group.settle(leader.running.changeMembers(removal));
    group.crash(gone as number);
    await group.settle(leader.running.propose(bytes("with three")));
    expect(leader.running.members.map(({ id }) => id)).not.toContain(gone);
  });

  // holds: consensus-membership-durable
  it("applies a membership change when its commit index is durable", async () => {
    const { group, leader, others } = await groupOf(3);
    const [gone, stays] = others as [TestMember, TestMember];
    const removal = [{ type: "removeNode" as const, nodeId: gone.member.id }];
    await group.settle(leader.running.changeMembers(removal));
    await group.until("the other one knows", () => stays.running.members.length === 2);
    for (const { running, files, member } of [leader, stays]) {
      const { applied } = running.status();
      files.crash("all");
      const owner = { cluster: "c", node: String(member.id) };
      const onDamaged = ({ message }: Error) => expect(message).toBeUndefined();
      const parts = { files, directory: "data", owner, restore: async () => {}, onDamaged };
      const log = await DurableLog.open({ ...parts, segmentBytes: 64 * 1024 });
      expect(log.memory.initialState().hardState.commit).toBe(applied);
    }
  });

  // holds: consensus-removed-voter
  it("of two voters gets the vote of the removed one, which must not end before", async () => {
    const { group, leader, others } = await groupOf(2);
    const [gone, stays] = [leader.member.id, others[0]?.member.id as number];
    const last = leader.running.status().commit;
    // The remaining one acknowledges the removal and never learns that it is committed.
    group.drop = ({ type, to, commit }) => type === "MsgApp" && to === stays && commit > last;
    const removal = [{ type: "removeNode" as const, nodeId: gone }];
    await group.settle(leader.running.changeMembers(removal));
    group.crash(gone);
    group.drop = () => false;
    await group.turns(100);
    expect(group.leader()).toBeUndefined();
    const { running } = await group.start(gone);
    await group.until("it knows that it was removed", () => running.members.length === 1);
    await group.until("the other leads", () => group.leader()?.member.id === stays);
    const left = () => group.members.get(stays)?.running.members ?? [];
    await group.until("it knows of the removal", () => left().length === 1);
    group.crash(gone);
    expect(
      await group.settle(group.leader()?.running.propose(bytes("alone")) as Promise<number>),
    ).toBe(1);
  });

  it("refuses a member whose name or id another one has", async () => {
    const { group, leader } = await groupOf(3);
    const twin = { id: 4, name: "m2", address: "x:1", nonce: "other" };
    const changes = [{ type: "addLearnerNode" as const, nodeId: 4 }];
    const refused = leader.running.changeMembers(changes, [twin]);
    await expect(group.settle(refused)).rejects.toMatchObject({ code: "conflict" });
    expect(leader.running.members).toHaveLength(3);
    const renamed = { id: 3, name: "m5", address: "x:2", nonce: "other" };
    const taken = leader.running.changeMembers(
      [{ type: "addLearnerNode" as const, nodeId: 3 }],
      [renamed],
    );
    await expect(group.settle(taken)).rejects.toMatchObject({ code: "conflict" });
    expect(leader.running.members.map(({ name }) => name)).toEqual(["m1", "m2", "m3"]);
  });

  it("refuses a change that would leave no member that votes", async () => {
    const { group, leader } = await groupOf(1);
    const joining = { id: 2, name: "m2", address: "m2:1", nonce: "n2" };
    const added = [{ type: "addLearnerNode" as const, nodeId: 2 }];
    await group.settle(leader.running.changeMembers(added, [joining]));
    const removed = leader.running.changeMembers([{ type: "removeNode", nodeId: 1 }]);
    await expect(group.settle(removed)).rejects.toMatchObject({ code: "conflict" });
    expect(await group.settle(leader.running.propose(bytes("still here")))).toBe(1);
  });

  // holds: raft-learner-vote
  it("gives no vote to a learner that has nothing yet, however short the log is", async () => {
    const { group, leader } = await groupOf(1);
    const joined = await group.start(2);
    group.drop = ({ type }) => type === "MsgSnap";
    const changes = [{ type: "addLearnerNode" as const, nodeId: 2 }];
    await group.settle(leader.running.changeMembers(changes, [joined.member]));
    await group.turns(100);
    expect(leader.running.status().members).toMatchObject([{ votes: true }, { votes: false }]);
    expect(await group.settle(leader.running.propose(bytes("alone")))).toBe(1);
    group.drop = () => false;
    await group.until("it votes", () => leader.running.status().members[1]?.votes === true);
  });

  it("makes the snapshot that a new member needs, though another is being written", async () => {
    const { group, leader } = await groupOf(1);
    await group.settle(leader.running.propose(bytes("first")));
    const written = leader.machine.snapshot();
    let finish = () => {};
    const held = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const slow = async function* () {
      await held;
      yield* written;
    };
    leader.machine.snapshot = slow as unknown as typeof leader.machine.snapshot;
    const first = leader.running.takeSnapshot();
    await group.turns(2);
    leader.machine.snapshot = TextMachine.prototype.snapshot;
    const joined = await group.start(2);
    const changes = [{ type: "addLearnerNode" as const, nodeId: 2 }];
    await group.settle(leader.running.changeMembers(changes, [joined.member]));
    finish();
    await group.settle(first);
    await group.until("it votes", () => leader.running.status().members[1]?.votes === true);
    expect(joined.machine.texts).toEqual(["first"]);
  });

  it("hands leadership over", async () => {
    const { group, leader, others } = await groupOf(3);
    const next = others[0];
    leader.running.transferLeadership(next?.member.id as number);
    await group.until("it leads", () => next?.running.status().role === "leader");
  });

  // holds: consensus-transfer-proposals
  it("makes a change once that was forwarded to a leader in transfer", async () => {
    const { group, leader, others } = await groupOf(3);
    const [next, third] = others;
    if (!next || !third) throw new Error("there are no followers");
    // The transfer lasts until this is let through, or for an election timeout.
    group.drop = ({ type }) => type === "MsgTimeoutNow";
    leader.running.transferLeadership(next.member.id);
    group.sent.length = 0;
    const replies = ["x", "y"].map((text) => third.running.propose(bytes(text)));
    const settled = Promise.allSettled(replies);
    await group.turns(3);
    const refused = group.sent.filter(({ type, reject }) => type === "MsgProp" && reject);
    expect(refused.length).toBeGreaterThan(0);
    // A refusal that is late or comes twice does nothing.
    const repeat = () => third.running.receive(refused);
    repeat();
    group.drop = () => false;
    leader.running.transferLeadership(third.member.id);
    for (let turn = 0; turn < 30; turn++) {
      await group.turns(1);
      repeat();
    }
    expect(await settled).toMatchObject([{ value: 1 }, { value: 2 }]);
    await group.until("all have applied all", () =>
      [...group.members.values()].every(({ machine }) => machine.texts.join() === "x,y"),
    );
  });

  // holds: consensus-transfer-proposals
  it("says that nothing was changed where a leader refused a change until its deadline", async () => {
    const { group, leader, others } = await groupOf(3, { requestTicks: 8 });
    const [next, third] = others;
    if (!next || !third) throw new Error("there are no followers");
    group.drop = ({ type }) => type === "MsgTimeoutNow";
    leader.running.transferLeadership(next.member.id);
    await expect(group.settle(third.running.propose(bytes("x")))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/Nothing was changed/),
    });
    group.drop = () => false;
    await group.turns(30);
    expect([...group.members.values()].flatMap(({ machine }) => machine.texts)).toEqual([]);
  });

  it("makes a change once that could not leave for the leader at first", async () => {
    const { group, leader, others } = await groupOf(3);
    const [follower] = others;
    if (!follower) throw new Error("there is no follower");
    group.unlinked = ({ from, type }) => from === follower.member.id && type === "MsgProp";
    const reply = follower.running.propose(bytes("x"));
    await group.turns(3);
    expect(leader.machine.texts).toEqual([]);
    group.unlinked = () => false;
    expect(await group.settle(reply)).toBe(1);
    await group.turns(10);
    expect(leader.machine.texts).toEqual(["x"]);
  });

  it("will not start under an identity whose log is gone", async () => {
    const group = new ReplicaGroup(1, { firstMembers: undefined, isJoining: false });
    await expect(group.startAll()).rejects.toMatchObject({ code: "server_error" });
  });
});
