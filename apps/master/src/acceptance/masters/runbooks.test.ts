// holds: cli-cluster, ops-runbooks

import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort, freePorts } from "@heddle/base/testing/free-ports";
import { afterEach, describe, expect, it } from "vitest";
import { type GroupView, MasterGroup } from "../../../test/master-group.ts";
import { Runbook } from "../../../test/runbook.ts";

// Every command of docs/runbooks, unchanged, against real masters.

let group: MasterGroup;
let runbook: Runbook;

afterEach(async () => {
  await runbook.close();
  await group.close();
});

/** The page, with the settings for all its commands. */
async function open(page: string, settings: NodeJS.ProcessEnv): Promise<void> {
  runbook = new Runbook(`runbooks/${page}`, group.folder, {
    HEDDLE_API_KEY: group.adminKey,
    HEDDLE_HTTP_PORT: "0",
    HEDDLE_DRAIN_MS: "100",
    HEDDLE_WAL_SEGMENT_MIB: "1",
    HEDDLE_BOOTSTRAP_KEY_FILE: join(group.folder, "admin-key"),
    TOKEN_FILE: group.tokenFile,
    ...settings,
  });
}

async function get<T>(path: string): Promise<T> {
  const headers = { authorization: `Bearer ${runbook.env["HEDDLE_API_KEY"]}` };
  const reply = await fetch(`${runbook.env["HEDDLE_ENDPOINT"]}/api/v1/${path}`, { headers });
  return (await reply.json()) as T;
}

async function view(): Promise<GroupView & { readonly cluster: string; readonly health: string }> {
  return get("cluster/status");
}

async function keys(): Promise<string[]> {
  const { data } = await get<{ data: { name: string }[] }>("keys?limit=100");
  return data.map(({ name }) => name);
}

async function awaitRole(name: string, role: string): Promise<void> {
  await eventually(
    async () => (await view()).masters.some((master) => master.id === name && master.role === role),
    `${name} is a ${role}`,
  );
}

/** Calls are recorded, and then signed, within a second each. */
const QUIET_MS = 2_500;

/** The status once no more calls and checkpoints are recorded. */
async function quietStatus(name: string) {
  let [before, now] = [await group.status(name), await group.status(name)];
  await eventually(async () => {
    before = now;
    await delay(QUIET_MS);
    now = await group.status(name);
    return now.applied === before.applied;
  }, "no more entries come");
  return now;
}

describe("runbook", () => {
  it("backup: a live, a stale and an offline backup, and a new cluster from one", async () => {
    group = new MasterGroup(1);
    await group.startAll();
    await group.createKey("master-1", "before the backup");
    const asked = { model: "FamilyA-1-2B", input: "kept in a backup" };
    const stored = await group.change("master-1", "POST", "/api/v1/responses", asked);
    const { id } = (await stored.json()) as { id: string };
    const old = await quietStatus("master-1");
    await open("backup", {
      HEDDLE_ENDPOINT: group.url("master-1"),
      DATA: group.directory("master-1"),
      NEW_DATA: join(group.folder, "new"),
      MASTER_1: await group.address("master-1"),
    });
    const live = (await runbook.run()).output;
    expect(live).toMatch(/SHA-256 [0-9a-f]{64}/);
    expect(live).toContain("the contents of 1 documents are in it");
    await runbook.run();
    await group.createKey("master-1", "after the backup");
    await group.end("master-1", "SIGKILL");
    const offline = (await runbook.run()).output;
    const [, last] = /up to entry (\d+)/.exec(offline) ?? [];
    expect(Number(last)).toBeGreaterThan(old.applied);
    expect(offline).toContain("the contents of 1 documents are in it");
    const restored = (await runbook.run()).output;
    expect(restored).toContain(`state ${old.state_hash}`);
    expect(restored).toContain("It has the contents of 1 documents.");
    const { url } = await runbook.start();
    runbook.env["HEDDLE_ENDPOINT"] = url;
    expect((await runbook.run()).output).toContain("before the backup");
    expect(await keys()).not.toContain("after the backup");
    expect(await get(`responses/${id}`)).toMatchObject({ id, status: "completed" });
    expect((await view()).applied).toBeGreaterThan(old.applied);
    runbook.end();
  });

  // holds: ops-recovery, ops-recovered-refuses
  it("forced recovery: one survivor of three forms a group, and the others rejoin", async () => {
    group = new MasterGroup(3);
    await group.startAll();
    await group.createKey("master-1", "kept");
    await eventually(
      async () => (await group.keyNames("master-3")).includes("kept"),
      "the survivor has it",
    );
    const before = await group.status("master-3");
    await group.end("master-1", "SIGKILL");
    await group.end("master-2", "SIGKILL");
    await eventually(async () => {
      return (await group.status("master-3")).leader === null;
    }, "there is no leader");
    const [one, two, three] = await Promise.all(group.names.map((name) => group.address(name)));
    const upPort = await freePorts([0, 1, 2, 1_000, 1_001, 1_002]);
    await open("forced-recovery", {
      UP_DATA: group.folder,
      UP_FLAGS: `--data ${group.folder} --port ${upPort} --workers 0 --profile tiny`,
      HEDDLE_ENDPOINT: group.url("master-3"),
      DATA: group.directory("master-3"),
      DATA_2: group.directory("master-2"),
      MASTER_2: two,
      MASTER_3: three,
      PEERS: `master-1=${one},master-2=${two},master-3=${three}`,
    });
    expect((await runbook.run()).output).toContain("unavailable");
    await group.end("master-3", "SIGKILL");
    expect((await runbook.run()).output).toContain("Nothing was done");
    await runbook.run();
    runbook.env["HEDDLE_ENDPOINT"] = (await runbook.start()).url;
    expect(await keys()).toContain("kept");
    expect((await view()).masters).toHaveLength(1);
    await refusesOldMaster("master-1");
    await runbook.run();
    await runbook.start();
    await awaitRole("master-2", "follower");
    expect((await runbook.run()).output).toMatch(/master-2 .*follower/);
    expect((await view()).commands).toBeGreaterThanOrEqual(before.commands);
    await runbook.close();
    await recoverUp(upPort);
    runbook.end();
  });

  it("replace a master: at its address, and then by another", async () => {
    group = new MasterGroup(3);
    await group.startAll();
    const [one, two, three] = await Promise.all(group.names.map((name) => group.address(name)));
    await group.end("master-3", "SIGKILL");
    await group.leader();
    await open("replace-a-master", {
      HEDDLE_ENDPOINT: group.url("master-1"),
      DATA_3: group.directory("master-3"),
      MASTER_3: three,
      PEERS: `master-1=${one},master-2=${two},master-3=${three}`,
      MASTER_4: `127.0.0.1:${await freePort()}`,
      DATA_4: join(group.folder, "master-4"),
    });
    const old = memberOf(await view(), "master-3");
    await runbook.run();
    await runbook.start();
    await eventually(async () => {
      const now = (await view()).masters.find(({ id }) => id === "master-3");
      return now?.role === "follower" && now.member !== old;
    }, "it votes under another number");
    await runbook.run();
    expect((await runbook.run()).output).toContain("heddle-master --name master-4");
    await runbook.start();
    await awaitRole("master-4", "follower");
    await runbook.run();
    const names = (await view()).masters.map(({ id }) => id);
    expect(names.sort()).toEqual(["master-1", "master-2", "master-4"]);
    runbook.end();
  });

  it("grow and shrink: 1, 3 and 1 masters, as processes and with heddle up", async () => {
    group = new MasterGroup(1);
    await group.startAll();
    await group.createKey("master-1", "kept");
    const up = {
      data: join(group.folder, "up"),
      port: await freePorts([0, 1, 2, 1_000, 1_001, 1_002]),
    };
    await open("grow-and-shrink", {
      HEDDLE_ENDPOINT: group.url("master-1"),
      MASTER_2: `127.0.0.1:${await freePort()}`,
      DATA_2: join(group.folder, "master-2"),
      MASTER_3: `127.0.0.1:${await freePort()}`,
      DATA_3: join(group.folder, "master-3"),
      UP_DATA: up.data,
      UP_FLAGS: `--data ${up.data} --port ${up.port} --workers 0 --profile tiny`,
    });
    await runbook.start();
    await awaitRole("master-2", "follower");
    await runbook.run();
    await runbook.start();
    await awaitRole("master-3", "follower");
    await shrink();
    expect((await runbook.run()).output).not.toContain("master-2");
    expect(await keys()).toContain("kept");
    await growUp(up.data, `http://127.0.0.1:${up.port}`);
    runbook.end();
  });
});

/**
 * The page's transfer to master-1 and the removals, each after the previous one has taken effect.
 */
async function shrink(blocks = 2): Promise<void> {
  await eventually(async () => (await view()).health === "ok", "the group is whole");
  if ((await view()).leader === "master-1") await awayFrom("master-1");
  await runbook.run();
  await eventually(async () => (await view()).leader === "master-1", "master-1 leads");
  for (let block = 0; block < blocks; block++) await runbook.run();
  await eventually(async () => (await view()).masters.length === 1, "one master is left");
}

/** So that the page's transfer is not a no-op. */
async function awayFrom(leader: string): Promise<void> {
  await fetch(`${runbook.env["HEDDLE_ENDPOINT"]}/api/v1/cluster/transfer`, {
    method: "POST",
    headers: { authorization: `Bearer ${runbook.env["HEDDLE_API_KEY"]}` },
  });
  await eventually(async () => {
    const now = (await view()).leader;
    return now !== null && now !== leader;
  }, "another leads");
}

async function growUp(data: string, url: string): Promise<void> {
  runbook.env["HEDDLE_ENDPOINT"] = url;
  const alone = await runbook.start();
  runbook.env["HEDDLE_API_KEY"] = readFileSync(join(data, "bootstrap-key"), "utf8").trim();
  const { cluster } = await view();
  await stop(alone.child);
  const three = await runbook.start();
  for (const name of ["master-2", "master-3"]) {
    await eventually(async () => {
      const master = (await view()).masters.find(({ id }) => id === name);
      return master !== undefined && master.role !== "learner";
    }, `${name} votes`);
  }
  await shrink(1);
  await stop(three.child);
  await runbook.run();
  await runbook.start();
  expect((await view()).cluster).toBe(cluster);
  expect(existsSync(join(data, "master-2"))).toBe(false);
}

/**
 * The same directories under `heddle up`: master-1 with its old data, the others with the new
 * group's.
 */
async function recoverUp(port: number): Promise<void> {
  copyFileSync(join(group.folder, "admin-key"), join(group.folder, "bootstrap-key"));
  copyFileSync(group.tokenFile, join(group.folder, "cluster-token"));
  runbook.env["HEDDLE_ENDPOINT"] = `http://127.0.0.1:${port}`;
  expect((await runbook.run()).output).toContain("Done");
  await runbook.run();
  await runbook.start();
  expect(await keys()).toContain("kept");
  for (const name of ["master-2", "master-3"]) await awaitRole(name, "follower");
  expect((await runbook.run()).output).toMatch(/master-3 .*follower/);
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = once(child, "close");
  child.kill("SIGINT");
  await ended;
}

function memberOf(status: GroupView, name: string): number | undefined {
  return status.masters.find(({ id }) => id === name)?.member;
}

/** A master with its old data belongs to the old group, and must not join this one. */
async function refusesOldMaster(name: string): Promise<void> {
  await group.start(name);
  await eventually(
    async () => /belongs to the cluster [0-9a-f]{32}, this one to/.test(group.printed(name)),
    `${name} is refused`,
  );
  expect((await group.status(name)).leader).toBeNull();
  expect((await view()).masters.map(({ id }) => id)).toEqual(["master-3"]);
  await group.end(name, "SIGKILL");
}
