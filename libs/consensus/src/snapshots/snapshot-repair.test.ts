// holds: consensus-snapshot-repair

import { describe, expect, it } from "vitest";
import { ReplicaGroup, type TestMember } from "../testing/replica-group.ts";

const bytes = (text: string) => Buffer.from(text);

/** The newest snapshot's file. */
function newestOf({ files }: TestMember): string {
  return files.paths().findLast((path) => path.endsWith(".snap")) as string;
}

function flip(member: TestMember): string {
  const path = newestOf(member);
  member.files.flipBit(path, member.files.content(path).length - 60, 3);
  return path;
}

/** A leader of three that has a snapshot, and a follower that is down and needs it. */
async function laggingGroup() {
  const group = new ReplicaGroup(3);
  await group.startAll();
  const leader = await group.elect();
  const behind = [...group.members.values()].find((member) => member !== leader) as TestMember;
  group.crash(behind.member.id);
  for (let i = 0; i < 20; i++) await group.settle(leader.running.propose(bytes(`c${i}`)));
  await group.settle(leader.running.takeSnapshot());
  return { group, leader, behind };
}

async function catchesUp(group: ReplicaGroup, leader: TestMember, behind: TestMember) {
  const started = await group.start(behind.member.id);
  await group.until("the member has caught up", () =>
    started.machine.texts.join().startsWith(leader.machine.texts.join()),
  );
}

const asides = ({ files }: TestMember) => files.paths().filter((path) => path.endsWith(".damaged"));

describe("a leader whose newest snapshot cannot be read", () => {
  it("reports a damaged one, sets its file aside and sends a fresh one", async () => {
    const { group, leader, behind } = await laggingGroup();
    const path = flip(leader);
    await catchesUp(group, leader, behind);
    expect(leader.damages).toEqual([
      expect.stringMatching(`${path} is damaged: the frame at byte`),
    ]);
    expect(asides(leader)).toEqual([`${path}.damaged`]);
    expect(leader.fates).toEqual(["setAside"]);
    expect(leader.fatal).toBeUndefined();
  });

  it("does the same after more entries than the snapshot has", async () => {
    const { group, leader, behind } = await laggingGroup();
    const path = flip(leader);
    await group.settle(leader.running.propose(bytes("later")));
    await catchesUp(group, leader, behind);
    expect(leader.damages).toHaveLength(1);
    expect(newestOf(leader) > path).toBe(true);
  });

  it("reports one that was deleted, and sends a fresh one", async () => {
    const { group, leader, behind } = await laggingGroup();
    const path = newestOf(leader);
    await leader.files.remove(path);
    await catchesUp(group, leader, behind);
    expect(leader.damages).toEqual([expect.stringMatching(`${path} cannot be read: ENOENT`)]);
    expect(leader.files.paths()).toContain(path);
    expect([leader.fates, asides(leader)]).toEqual([["gone"], []]);
  });

  it("ends where the disk refuses a fresh one", async () => {
    const { group, leader, behind } = await laggingGroup();
    flip(leader);
    leader.files.fail();
    await group.start(behind.member.id);
    await group.until("the leader ends", () => leader.fatal !== undefined);
    expect(leader.damages).toHaveLength(1);
    expect(leader.fatal?.message).toMatch(/ENOSPC|EIO/);
  });

  it("keeps a snapshot that is whole where it is the network that fails", async () => {
    const { group, leader, behind } = await laggingGroup();
    let dropped = 0;
    group.drop = ({ type }) => type === "MsgSnap" && ++dropped < 5;
    await catchesUp(group, leader, behind);
    expect(dropped).toBe(5);
    expect([leader.damages, asides(leader)]).toEqual([[], []]);
  });

  it("replaces each damaged one, also one after the other", async () => {
    const { group, leader, behind } = await laggingGroup();
    for (const times of [1, 2]) {
      flip(leader);
      await catchesUp(group, leader, behind);
      expect(leader.damages).toHaveLength(times);
      group.crash(behind.member.id);
      for (let i = 0; i < 20; i++) await group.settle(leader.running.propose(bytes(`d${i}`)));
      await group.settle(leader.running.takeSnapshot());
    }
  });

  it("starts from the one before when the fresh one is damaged too", async () => {
    const { group, leader, behind } = await laggingGroup();
    flip(leader);
    await group.settle(leader.running.propose(bytes("later")));
    await catchesUp(group, leader, behind);
    const { texts } = leader.machine;
    flip(leader);
    const { id } = leader.member;
    group.crash(id);
    const again = await group.start(id);
    await group.until("it has all entries", () => again.machine.texts.join() === texts.join());
    expect(again.damages).toHaveLength(2);
  });
});

it("snapshot: a request replaces a damaged one, even without new entries", async () => {
  const { group, leader } = await laggingGroup();
  const path = flip(leader);
  const damaged = leader.files.content(path);
  await group.settle(leader.running.takeSnapshot());
  expect(leader.damages).toHaveLength(1);
  expect(leader.files.content(path)).not.toEqual(damaged);
  await group.settle(leader.running.takeSnapshot());
  expect(leader.damages).toHaveLength(1);
});

it("snapshot: the one before a damaged one is kept when the next is taken", async () => {
  const { group, leader } = await laggingGroup();
  const { id } = leader.member;
  await group.settle(leader.running.propose(bytes("x")));
  await group.settle(leader.running.takeSnapshot());
  const damaged = flip(leader);
  group.crash(id);
  const again = await group.start(id);
  expect(again.damages).toHaveLength(1);
  await group.until("it has applied all", () => again.machine.texts.at(-1) === "x");
  await group.settle(again.running.takeSnapshot());
  const kept = again.files.paths().filter((path) => path.endsWith(".snap"));
  expect(kept).toHaveLength(2);
  expect(kept).not.toContain(damaged);
  const { texts } = again.machine;
  flip(again);
  group.crash(id);
  const third = await group.start(id);
  await group.until("it has all", () => third.machine.texts.join() === texts.join());
});

it("snapshot: with both damaged the start is refused, and the files are kept", async () => {
  const { group, leader } = await laggingGroup();
  await group.settle(leader.running.propose(bytes("x")));
  await group.settle(leader.running.takeSnapshot());
  const { id } = leader.member;
  const paths = leader.files.paths().filter((path) => path.endsWith(".snap"));
  for (const path of paths) leader.files.flipBit(path, leader.files.content(path).length - 60, 3);
  group.crash(id);
  for (let start = 1; start <= 2; start++) {
    await expect(group.start(id)).rejects.toMatchObject({
      code: "server_error",
      message: expect.stringContaining("no usable snapshot is left in data/snapshots"),
    });
    expect(leader.fates).toHaveLength(2 * start);
  }
  expect(new Set(leader.fates)).toEqual(new Set(["left"]));
  expect(asides(leader)).toEqual([]);
  expect(leader.files.paths()).toEqual(expect.arrayContaining(paths));
});
