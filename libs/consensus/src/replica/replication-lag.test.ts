// holds: consensus-lag

import { expect, it } from "vitest";
import { ReplicaGroup } from "../testing/replica-group.ts";

it("lag: a follower that gets only heartbeats is behind, until it catches up", async () => {
  const group = new ReplicaGroup(3);
  await group.startAll();
  const leader = await group.elect();
  const [stuck, other] = [...group.members.values()].filter((member) => member !== leader);
  if (!stuck || !other) throw new Error("there are no followers");
  const { id } = stuck.member;
  const seen = () =>
    leader.running.status().members.flatMap(({ id, isBehind }) => (isBehind ? [id] : []));
  group.drop = ({ type, to }) => to === id && (type === "MsgApp" || type === "MsgSnap");
  await group.settle(leader.running.propose(Buffer.from("x")));
  await group.turns(5);
  // What is a moment late is not behind.
  expect([stuck.running.status().isBehind, seen()]).toEqual([false, []]);
  await group.until("it knows", () => stuck.running.status().isBehind);
  await group.until("the leader knows", () => seen().length > 0);
  expect(seen()).toEqual([id]);
  expect(stuck.running.status().leader).toBe(leader.member.id);
  expect([other, leader].map(({ running }) => running.status().isBehind)).toEqual([false, false]);
  group.drop = () => false;
  await group.until("it has caught up", () => stuck.machine.texts.length === 1);
  await group.until("both know", () => !stuck.running.status().isBehind && seen().length === 0);
});

it("replication lag: a follower that keeps taking new entries is not behind", async () => {
  const group = new ReplicaGroup(3);
  await group.startAll();
  const leader = await group.elect();
  for (let i = 0; i < 60; i++) {
    await group.settle(leader.running.propose(Buffer.from(`${i}`)));
    await group.turns(1);
    for (const { running } of group.members.values()) {
      expect(running.status().isBehind).toBe(false);
      expect(running.status().members.some(({ isBehind }) => isBehind)).toBe(false);
    }
  }
});

it("lag: a member that was paused is behind until it knows the commit index", async () => {
  const group = new ReplicaGroup(3);
  await group.startAll();
  const leader = await group.elect();
  await group.settle(leader.running.propose(Buffer.from("x")));
  for (const { running } of group.members.values()) {
    // No other leader can have been elected in so short a time.
    running.tick(8);
    expect(running.status().isBehind).toBe(false);
    running.tick(9);
    // A leader too takes itself for one still.
    expect(running.status().isBehind).toBe(true);
    await group.until("it has received a heartbeat", () => !running.status().isBehind);
  }
  const away = await group.elect();
  group.drop = ({ from, to }) => [from, to].includes(away.member.id);
  away.running.tick(9);
  await group.until("another leads", () => {
    const others = [...group.members.values()].filter((member) => member !== away);
    return others.some(({ running }) => running.status().role === "leader");
  });
  await group.turns(250);
  expect(away.running.status().isBehind).toBe(true);
  group.drop = () => false;
  await group.until("it has received a heartbeat", () => !away.running.status().isBehind);
});

it("replication lag: the only member has missed nothing while it was down", async () => {
  const group = new ReplicaGroup(1);
  await group.startAll();
  const { running } = await group.elect();
  running.tick(100);
  await group.turns(1);
  expect(running.status().isBehind).toBe(false);
});
