// holds: sec-readyz

import { eventually } from "@heddle/base/testing/eventually";
import { atLeastFourOfFive } from "@heddle/base/testing/tries";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

let group: MasterGroup;

async function seesKey(name: string, label: string): Promise<void> {
  await eventually(
    async () => (await group.keyNames(name)).includes(label),
    `${name} has the key ${label}`,
  );
}

describe("three masters", () => {
  beforeAll(() => {
    group = new MasterGroup(3, ["--snapshot-entries", "20"]);
  });
  // What a test has killed runs again for the next.
  beforeEach(async () => {
    await group.startMissing();
  });
  afterAll(() => group.close());

  it("elect a new leader when theirs is killed, and keep every answered change", async () => {
    const first = await group.leader();
    const made = await group.createKey(first, "before");
    await group.end(first, "SIGKILL");
    const second = await group.leader();
    expect(second).not.toBe(first);
    const [third] = group.runningNames.filter((name) => name !== second);
    for (const name of [second, third as string]) {
      await seesKey(name, "before");
      const models = await group.request(name, "GET", "/api/v1/models", undefined, made.key);
      expect(models.status).toBe(200);
    }
    await group.createKey(third as string, "through a follower");
    await eventually(async () => {
      const { leader, masters } = await group.status(third as string);
      const shown = masters.find(({ id }) => id === leader);
      return shown?.role === "leader" && shown.lag === 0;
    }, "the leader is shown, and no master to be behind it");
    await seesKey(second, "through a follower");
    await group.start(first);
    await seesKey(first, "through a follower");
    await expectEqualStates();
  });

  // holds: masters-quorum-lost
  it("refuse changes with 503 while there is no majority, and still answer stale reads", async () => {
    await group.createKey("master-1", "kept");
    await seesKey("master-3", "kept");
    await group.end("master-1", "SIGKILL");
    await group.end("master-2", "SIGKILL");
    await eventually(async () => {
      return (await group.status("master-3")).leader === null;
    }, "the last one has no leader");
    const refused = await group.request("master-3", "POST", "/api/v1/keys", { name: "lost" });
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ code: "unavailable", retryable: true });
    const transfer = await group.request("master-3", "POST", "/api/v1/cluster/transfer");
    expect(transfer.status).toBe(503);
    expect(await transfer.json()).toMatchObject({ code: "unavailable", retryable: true });
    expect(await group.keyNames("master-3")).toContain("kept");
    const health = await group.request("master-3", "GET", "/health/detailed");
    const degraded = { status: "degraded", detail: expect.stringContaining("no leader") };
    expect(await health.json()).toMatchObject({
      status: "degraded",
      components: { control: degraded, workers: { status: "degraded", attached: 0 } },
    });
    const ready = await group.request("master-3", "GET", "/readyz");
    expect(ready.status).toBe(503);
    expect(await ready.text()).toContain("[-]quorum failed");
    await group.start("master-1");
    await group.leader();
    await group.createKey("master-3", "made");
    expect(await group.keyNames("master-3")).not.toContain("lost");
  });

  // holds: consensus-blocked-thread
  it("keep their leader while its main thread is blocked", async () => {
    // A machine that is blocked for a second ends a term too.
    await atLeastFourOfFive(async () => {
      const leader = await group.leader();
      const { term } = await group.status(leader);
      group.block(leader);
      // Three times what it takes the others to elect a new leader when theirs is silent.
      await group.status(leader);
      return (await group.status(await group.leader())).term === term;
    });
  });

  // holds: masters-restart
  it("have their state after all of them were killed", async () => {
    await group.createKey("master-2", "outlives all");
    await Promise.all(group.names.map((name) => group.end(name, "SIGKILL")));
    await group.startAll();
    for (const name of group.names) await seesKey(name, "outlives all");
  });

  // holds: masters-wiped-disk
  it("take a master back whose disk was wiped, under a new id and by a snapshot", async () => {
    for (let i = 0; i < 60; i++) await group.createKey("master-1", `key ${i}`);
    const leader = await group.leader();
    const wiped = group.names.find((name) => name !== leader) as string;
    const before = (await group.status(leader)).masters.find(({ id }) => id === wiped);
    await group.end(wiped, "SIGKILL");
    group.wipe(wiped);
    await group.start(wiped);
    await seesKey(wiped, "key 59");
    await eventually(async () => {
      const view = (await group.status(leader)).masters.find(({ id }) => id === wiped);
      return view?.role === "follower" && view.member !== before?.member;
    }, "it votes again");
    expect((await group.status(wiped)).snapshot_index).toBeGreaterThan(20);
    await group.createKey(wiped, "after");
    await expectEqualStates();
  });

  // holds: raft-transfer
  it("hand leadership over when asked, and remove a master", async () => {
    const leader = await group.leader();
    const next = group.names.find((name) => name !== leader) as string;
    for (const [body, param] of [
      [{ bogus: 1 }, "bogus"],
      [{ to: next, force: true }, "force"],
      [{ to: 7 }, "to"],
    ] as const) {
      const refused = await group.request(leader, "POST", "/api/v1/cluster/transfer", body);
      expect(refused.status, param).toBe(400);
      expect(await refused.json()).toMatchObject({
        code: "invalid_value",
        errors: [{ pointer: `#/${param}` }],
      });
    }
    const asked = await group.request(leader, "POST", "/api/v1/cluster/transfer", { to: next });
    expect(asked.status).toBe(202);
    await eventually(async () => (await group.leader()) === next, "the other leads");
    const removed = await group.request(next, "DELETE", `/api/v1/cluster/masters/${next}`);
    expect(removed.status).toBe(200);
    // It no longer learns the leader and the commit index.
    expect(await removed.json()).toMatchObject({ leader: null, may_be_stale: true });
    await group.end(next, "SIGKILL");
    await group.createKey(leader, "with two");
    expect((await group.status(leader)).masters.map(({ id }) => id)).not.toContain(next);
  });
});

describe("one master", () => {
  afterEach(() => group.close());

  // holds: masters-restart
  it("has its state after a kill, and its snapshot", async () => {
    group = new MasterGroup(1, ["--snapshot-entries", "10"]);
    await group.startAll();
    for (let i = 0; i < 25; i++) await group.createKey("master-1", `key ${i}`);
    // The master signs its event log at intervals: such a command may come between the two.
    await eventually(async () => {
      const before = await group.status("master-1");
      await group.end("master-1", "SIGKILL");
      await group.start("master-1");
      const after = await group.status("master-1");
      expect(after.snapshot_index).toBeGreaterThan(10);
      if (after.commands !== before.commands) return false;
      expect(after.state_hash).toBe(before.state_hash);
      return true;
    }, "the same commands before the kill and after the restart");
    expect(await group.keyNames("master-1")).toHaveLength(26);
  });

  // holds: masters-grow
  it("becomes one of three as others join it, each with a copy of its state", async () => {
    group = new MasterGroup(1);
    await group.startAll();
    await group.createKey("master-1", "first");
    for (const name of ["master-2", "master-3"]) {
      await group.start(name);
      await seesKey(name, "first");
      await eventually(
        async () =>
          (await group.status("master-1")).masters.some(
            ({ id, role }) => id === name && role === "follower",
          ),
        `${name} votes`,
      );
    }
    await group.end("master-1", "SIGKILL");
    await group.leader();
    await group.createKey("master-3", "without the first");
    await seesKey("master-2", "without the first");
  });
});

/** The same number of commands must have led to the same state on all. */
async function expectEqualStates(): Promise<void> {
  await eventually(async () => {
    const views = await Promise.all(group.runningNames.map((name) => group.status(name)));
    const [first] = views;
    return views.every(
      ({ commands, state_hash }) => commands === first?.commands && state_hash === first.state_hash,
    );
  }, "all masters have the same state");
}
