// holds: state-at, state-at-bounds, sched-replay

import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Heddle } from "@heddle/client/heddle";
import type { PastState } from "@heddle/contracts/api/history/state";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// A master's process with a real log, encrypted, and snapshots after every 40 entries.

const NAME = "master-1";
const CANARY = "canary-9d1f7c";

let group: MasterGroup;
let heddle: Heddle;

beforeAll(async () => {
  group = new MasterGroup(1, ["--snapshot-entries", "40"], (name) => ({
    env: { HEDDLE_SECRETS_KEY_FILE: join(group.folder, `${name}.key`) },
  }));
  writeFileSync(join(group.folder, `${NAME}.key`), Buffer.alloc(32, 5).toString("base64"));
  await group.startAll();
  await group.leader();
  heddle = new Heddle({ endpoint: group.url(NAME)!, auth_token: group.adminKey });
});
afterAll(() => group?.close());

interface Seen {
  readonly applied: number;
  readonly hash: string;
}

/** The position and the hash of the state now; both are read at once by the master. */
async function now(): Promise<Seen> {
  const { applied = 0, state_hash: hash = "" } = await heddle.cluster.status();
  return { applied, hash };
}

/** Rebuilds are one at a time. */
async function stateAt(at: number, collection?: "projects" | "keys"): Promise<PastState> {
  let state: PastState | undefined;
  await eventually(async () => {
    state = await heddle.cluster.state({ at, collection }).catch((error: { code?: string }) => {
      if (error.code === "overloaded") return undefined;
      throw error;
    });
    return state !== undefined;
  });
  return state!;
}

async function weight(value: number): Promise<Seen> {
  await heddle.projects.set("alpha", { weight: value });
  return now();
}

const PROGRAM = fileURLToPath(new URL("../../../../cli/dist/main.js", import.meta.url));

/** What the command prints; rejects with its exit code. */
async function explained(job: string, at: number): Promise<string> {
  const env = { ...process.env, HEDDLE_ENDPOINT: group.url(NAME), HEDDLE_API_KEY: group.adminKey };
  const command = [PROGRAM, "jobs", "explain", job, "--at", String(at)];
  const { stdout } = await promisify(execFile)(process.execPath, command, { env });
  return stdout;
}

/** The remedy for a position that the master does not have. */
const FIX = /^error .*\d\..*\nfix .*`heddle cluster status` shows the last one, APPLIED/;

const weightIn = ({ data }: PastState) => data.find(({ id }) => id === "alpha")?.["weight"];

describe("past states", () => {
  it("are those that were: each position's hash and records", async () => {
    const two = await weight(2);
    const five = await weight(5);
    const states = [
      await stateAt(two.applied, "projects"),
      await stateAt(five.applied, "projects"),
    ];
    expect(states.map(weightIn)).toEqual([2, 5]);
    expect(states.map((state) => state.state_hash)).toEqual([two.hash, five.hash]);
    expect(states[0]?.counts["projects"]).toBe(1);
    expect(Date.parse(states[0]!.time)).toBeLessThanOrEqual(Date.now());
  });

  it("show no secret, whatever is listed", async () => {
    await heddle.secrets.set("token", CANARY);
    const environment_variables = { PASSWORD: CANARY };
    await heddle.jobs.create({
      name: "j",
      project: "alpha",
      command: ["true"],
      environment_variables,
    });
    const { applied } = await now();
    const texts: string[] = [];
    for (const collection of [
      "keys",
      "roles",
      "bindings",
      "settings",
      "limits",
      "projects",
    ] as const)
      texts.push(JSON.stringify(await heddle.cluster.state({ at: applied, collection })));
    for (const collection of ["models", "workers", "jobs"] as const)
      texts.push(JSON.stringify(await heddle.cluster.state({ at: applied, collection })));
    const all = texts.join("\n");
    expect(all).toContain('"name":"j"');
    expect(all).toMatch(/"secrets":1/);
    expect(all).not.toContain(CANARY);
    expect(all).not.toMatch(/"hash"|BEGIN|pepper|subjectKeys/);
  });

  it("replay a scheduling decision with what it was made of", async () => {
    const { job_id: id } = await heddle.jobs.create({ name: "waits", command: ["true"] });
    const { applied } = await now();
    await heddle.jobs.cancel(id);
    const after = await now();
    const decision = await heddle.cluster.decision(id, { at: applied });
    expect(decision).toMatchObject({ at: applied, verdict: "waits", placement: [] });
    expect(decision.inputs).toMatchObject({ nodes: 0, ready_nodes: 0, position: 2, queued: 2 });
    expect(JSON.stringify(decision.explanation)).toContain("NoNodes");
    const ended = await heddle.cluster.decision(id, { at: after.applied });
    expect(ended).toMatchObject({ verdict: "ended", explanation: null });
    await expect(heddle.cluster.decision("job_none", { at: applied })).rejects.toMatchObject({
      status: 404,
    });
  });

  it("show a past decision by `heddle jobs explain --at`", async () => {
    const { job_id: id } = await heddle.jobs.create({ name: "waits", command: ["true"] });
    const { applied } = await now();
    await heddle.jobs.cancel(id);
    const shown = await explained(id, applied);
    expect(shown).toMatch(
      new RegExp(`^${id} at ${applied} \\(.*Z\\): (accepted|pending), waits\\n`),
    );
    expect(shown).toMatch(/with 0 of 0 nodes ready and \d+ in the queue: place \d+\n/);
    expect(shown).toContain("NoNodes");
    expect(await explained(id, (await now()).applied)).toMatch(/: cancelled, ended\n/);
    const late = explained(id, applied + 100_000);
    await expect(late).rejects.toMatchObject({ code: 3, stderr: expect.stringMatching(FIX) });
  });

  it("are 410 with the first kept, where they are not kept any more", async () => {
    const early = await weight(3);
    for (let at = 0; at < 90; at++) await heddle.projects.set("alpha", { weight: 10 + at });
    const gone = await heddle.cluster.state({ at: early.applied }).catch((error: unknown) => error);
    expect(gone).toMatchObject({ status: 410 });
    const [, first = ""] = /first kept is (\d+)/.exec((gone as Error).message) ?? [];
    expect(Number(first)).toBeGreaterThan(early.applied);
    expect((await stateAt(Number(first))).first_kept).toBe(Number(first));
    const before = heddle.cluster.state({ at: Number(first) - 1 });
    await expect(before).rejects.toMatchObject({ status: 410 });
    const latest = await now();
    expect((await stateAt(latest.applied)).state_hash).toBe(latest.hash);
    const { job_id: id } = await heddle.jobs.create({ name: "waits", command: ["true"] });
    const forgotten = explained(id, early.applied);
    await expect(forgotten).rejects.toMatchObject({ code: 3, stderr: expect.stringMatching(FIX) });
  });

  it("are read while changes are made and snapshots replace files", async () => {
    const seen: Seen[] = [];
    const changes = async () => {
      for (let at = 0; at < 90; at++) seen.push(await weight(200 + at));
    };
    const changing = held(changes());
    for (let read = 0; read < 3; read++) {
      await eventually(() => seen.length >= read * 30 + 1);
      const { applied, hash } = seen.at(-1)!;
      expect((await stateAt(applied)).state_hash).toBe(hash);
    }
    await changing;
  });

  it("are refused: of the future, without a position, to others, and two at once", async () => {
    const { applied } = await now();
    const get = (query: string, key = group.adminKey) =>
      fetch(`${group.url(NAME)}/api/v1/cluster/state${query}`, {
        headers: { authorization: `Bearer ${key}` },
      });
    expect((await get(`?at=${applied + 100_000}`)).status).toBe(404);
    for (const query of ["", "?at=0", "?at=x", "?at=1&collection=secrets", "?at=1&limit=0"]) {
      expect((await get(query)).status, query).toBe(400);
    }
    const operator = await heddle.keys.create({ name: "o", role: "operator" });
    expect((await get(`?at=${applied}`, operator.key)).status).toBe(403);
    const both = await Promise.all([get(`?at=${applied}`), get(`?at=${applied}`)]);
    expect(both.map(({ status }) => status).sort()).toEqual([200, 503]);
    expect(both.find(({ status }) => status === 503)?.headers.get("retry-after")).not.toBeNull();
  });
});
