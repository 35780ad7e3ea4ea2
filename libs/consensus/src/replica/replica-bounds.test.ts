import { createMessage, type Message } from "@heddle/raft/core/message";
import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import { expect, it } from "vitest";
import { ReplicaGroup, type TestMember } from "../testing/replica-group.ts";

// Bounds and deadlines of a replica; its guarantees are in raft-replica.test.ts.

const bytes = (text: string) => Buffer.from(text);

async function groupOf(count: number, options = {}) {
  const group = new ReplicaGroup(count, options);
  await group.startAll();
  const leader = await group.elect();
  const others = [...group.members.values()].filter((member) => member !== leader);
  return { group, leader, others: others as [TestMember, ...TestMember[]] };
}

const carries = ({ type, entries }: Message, text: string) =>
  type === "MsgApp" && entries.some(({ data }) => Buffer.from(data).includes(text));

it("replica: a change of members is unknown, too, when another leader has taken over", async () => {
  const { group, leader, others } = await groupOf(3);
  const cut = leader.member.id;
  group.drop = ({ from, to }) => from === cut || to === cut;
  const changed = leader.running.changeMembers([{ type: "removeNode", nodeId: cut }]);
  changed.catch(() => undefined);
  const next = () => others.find(({ replica }) => replica?.status().isActiveLeader);
  await group.until("another one leads", () => next() !== undefined);
  group.drop = () => false;
  await expect(group.settle(changed)).rejects.toMatchObject({
    code: "outcome_unknown",
    message: expect.stringMatching(/the leader changed meanwhile/),
  });
});

it("replica: proposals of a leader gather while its disk is busy, and leave as one", async () => {
  const { group, leader, others } = await groupOf(3);
  leader.files.hold();
  const replies = [leader.running.propose(bytes("first"))];
  await group.turns(1);
  group.sent.length = 0;
  for (const text of ["second", "third"]) replies.push(leader.running.propose(bytes(text)));
  await group.turns(3);
  expect(group.sent.filter((message) => carries(message, "second"))).toEqual([]);
  leader.files.release();
  expect(await group.settle(Promise.all(replies))).toEqual([1, 2, 3]);
  const together = group.sent.filter((message) => carries(message, "second"));
  expect(together.length).toBeGreaterThanOrEqual(others.length);
  expect(together.every((message) => carries(message, "third"))).toBe(true);
});

it("replica: a member without a link is sent one append at a time", async () => {
  const { group, leader, others } = await groupOf(3);
  const lost = others[0].member.id;
  let tried = 0;
  group.unlinked = ({ type, to }) => {
    if (to === lost && type === "MsgApp") tried++;
    return to === lost;
  };
  for (let i = 0; i < 20; i++) leader.running.propose(bytes(`${i}`)).catch(() => undefined);
  await group.settle(leader.running.propose(bytes("last")));
  for (let i = 0; i < 20; i++) await group.settle(leader.running.propose(bytes(`${i}`)));
  expect(tried).toBeLessThan(4);
  group.unlinked = () => false;
  await group.until("it has caught up", () => others[0].machine.texts.length === 41);
});

it("replica: a learner's promotion is proposed once in an election timeout", async () => {
  const { group, leader, others } = await groupOf(3);
  const joined = await group.start(4);
  const changes = [{ type: "addLearnerNode" as const, nodeId: 4 }];
  await group.settle(leader.running.changeMembers(changes, [joined.member]));
  // The learner catches up, and nothing more is committed: the voters' acknowledgements are lost.
  const voters = others.map(({ member }) => member.id);
  group.drop = ({ type, from }) => type === "MsgAppResp" && voters.includes(from);
  await group.turns(1);
  group.sent.length = 0;
  await group.turns(25);
  const proposed = group.sent
    .filter(({ type, to }) => type === "MsgApp" && to === 4)
    .flatMap(({ entries }) => entries.map(({ index }) => index));
  expect(new Set(proposed).size).toBeLessThan(4);
  group.drop = () => false;
  await group.until("it votes", () => joined.running.status().members[3]?.votes === true);
});

const META = { index: 90, term: 9, cluster: "c" };

/** A snapshot's message, and pieces that come when they are let. */
function incoming(to: number) {
  const snapshot = { ...META, confState: EMPTY_CONF_STATE, data: new Uint8Array(0) };
  const message = createMessage({ type: "MsgSnap", to, from: 9, snapshot });
  const arrival = Promise.withResolvers<void>();
  const chunks = async function* () {
    await arrival.promise;
    yield bytes("x\n");
  };
  const meta = { ...META, detail: { confState: EMPTY_CONF_STATE, members: [], lastId: 0 } };
  return { message, meta, chunks: chunks(), arrival };
}

it("replica: one snapshot is received at a time, also after one that broke off", async () => {
  const { leader } = await groupOf(1);
  const receive = ({ message, meta, chunks }: ReturnType<typeof incoming>) =>
    leader.running.receiveSnapshot(message, meta, chunks);
  const first = incoming(1);
  const received = receive(first);
  await expect(receive(incoming(1))).rejects.toMatchObject({ code: "overloaded" });
  first.arrival.reject(new Error("the stream broke"));
  await expect(received).rejects.toThrow(/the stream broke/);
  const next = incoming(1);
  next.arrival.resolve();
  await receive(next);
  expect(leader.fatal).toBeUndefined();
});

it("replica: a snapshot other than its message's is refused before it is read", async () => {
  const { leader } = await groupOf(1);
  for (const wrong of [{ index: 91 }, { term: 8 }]) {
    const { message, meta, chunks } = incoming(1);
    const received = leader.running.receiveSnapshot(message, { ...meta, ...wrong }, chunks);
    await expect(received).rejects.toMatchObject({ code: "invalid_value" });
  }
  const { meta, chunks } = incoming(1);
  const without = createMessage({ type: "MsgSnap", to: 1, from: 9 });
  const received = leader.running.receiveSnapshot(without, meta, chunks);
  await expect(received).rejects.toMatchObject({ code: "invalid_value" });
});

it("replica: at its end all callers are rejected, later ones too", async () => {
  const { group, leader } = await groupOf(3);
  group.drop = () => true;
  const open = [
    leader.running.propose(bytes("x")),
    leader.running.readBarrier(),
    leader.running.changeMembers([{ type: "removeNode", nodeId: 3 }]),
  ];
  const ends = Promise.allSettled(open);
  await group.turns(2);
  await leader.running.stop();
  expect((await ends).map((end) => "reason" in end && end.reason.code)).toEqual([
    "outcome_unknown",
    "unavailable",
    "outcome_unknown",
  ]);
  for (const late of [
    leader.running.propose(bytes("y")),
    leader.running.readBarrier(),
    leader.running.changeMembers([{ type: "removeNode", nodeId: 3 }]),
  ]) {
    await expect(late).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/shutting down/),
    });
  }
  expect(leader.fatal).toBeUndefined();
});

it("replica: a change of members without an answer ends at its deadline", async () => {
  const { group, leader } = await groupOf(3, { requestTicks: 6 });
  group.drop = ({ type }) => type === "MsgAppResp";
  const changed = leader.running.changeMembers([{ type: "removeNode", nodeId: 3 }]);
  await expect(group.settle(changed)).rejects.toMatchObject({
    code: "outcome_unknown",
    message: expect.stringMatching(/no majority of masters answered in time/),
  });
});

it("replica: a proposal needs no tick, and none of the group's members is oneself", async () => {
  const { group, leader, others } = await groupOf(3);
  const reply = leader.running.propose(bytes("x"));
  let isDone = false;
  reply.then(() => {
    isDone = true;
  });
  for (let turn = 0; turn < 200 && !isDone; turn++) await new Promise((go) => setImmediate(go));
  expect(isDone).toBe(true);
  const known = group.known.get(leader.member.id)?.map(({ id }) => id);
  expect(known).toEqual(others.map(({ member }) => member.id));
});

it("replica: the only voter leads at once, one of several waits for the others", async () => {
  const alone = new ReplicaGroup(1);
  const only = await alone.start(1);
  await expect.poll(() => only.running.status().role).toBe("leader");
  const several = new ReplicaGroup(3);
  const first = await several.start(1);
  expect(first.running.status().role).toBe("follower");
});

it("replica: one that has stopped sends no word of what it wrote last", async () => {
  const { group, leader, others } = await groupOf(3);
  const [stopping] = others;
  stopping.files.hold();
  const reply = leader.running.propose(bytes("x"));
  await group.turns(1);
  const stopped = stopping.running.stop();
  group.sent.length = 0;
  stopping.files.release();
  await stopped;
  expect(group.sent.filter(({ from }) => from === stopping.member.id)).toEqual([]);
  expect(await group.settle(reply)).toBe(1);
});
