// holds: sec-master-join

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePorts } from "@heddle/base/testing/free-ports";
import { held } from "@heddle/base/testing/held";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// `heddle up --masters 3` with the real programs: what a user loses when masters die. The tests run
// in order on one cluster.

const CLI = programOf("cli");
const MODEL = "FamilyB-1-8B";
const MASTERS = ["master-1", "master-2", "master-3"] as const;
type Master = (typeof MASTERS)[number];
/** Banned tokens, so that an answer of the tiny model runs to its bound. */
const NO_END = { "0": -100, "1": -100, "2": -100, "3": -100 };

const data = mkdtempSync(join(tmpdir(), "heddle-up-masters-"));
const created = new Set<string>();
let up: DrivenProcess;
let port = 0;
let key = "";

beforeAll(async () => {
  port = await freePorts(MASTERS.flatMap((_, at) => [at, at + 1_000]));
  const flags = ["--masters", "3", "--workers", "1", "--profile", "tiny", "--port", `${port}`];
  const places = ["--data", data, "--models-cache", join(data, "cache")];
  up = new DrivenProcess([process.execPath, CLI, "up", ...flags, ...places]);
  await up.printed(/Ctrl-C stops everything/);
  key = readFileSync(join(data, "bootstrap-key"), "utf8").trim();
});
afterAll(async () => {
  up.child.kill("SIGINT");
  await up.end();
  rmSync(data, { recursive: true });
});

function request(
  master: Master,
  method: string,
  path: string,
  body?: unknown,
  more: Record<string, string> = {},
): Promise<Response> {
  return fetch(`http://127.0.0.1:${port + MASTERS.indexOf(master)}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...more },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(300_000),
  });
}

const chat = (master: Master, more: object) =>
  request(master, "POST", "/chat/completions", {
    model: MODEL,
    messages: [{ role: "user", content: "continue" }],
    logit_bias: NO_END,
    ...more,
  });

async function createKey(master: Master, name: string): Promise<void> {
  const once = { "idempotency-key": `key-${created.size}` };
  // If the leader dies during the change, its outcome is unknown; repeated, it is made once.
  await settles(async () => {
    const reply = await request(master, "POST", "/keys", { name }, once);
    const text = await reply.text();
    expect([200, 503], text).toContain(reply.status);
    return reply.status === 200;
  });
  created.add(name);
}

async function statusOf(master: Master) {
  const reply = await request(master, "GET", "/cluster/status");
  return (await reply.json()) as { readonly leader: Master | null; readonly term: number };
}

async function leader(): Promise<Master> {
  let found: Master | null = null;
  await settles(async () => {
    const seen = await Promise.all(MASTERS.map(statusOf));
    found = seen[0]?.leader ?? null;
    return found !== null && seen.every((each) => each.leader === found);
  });
  return found as unknown as Master;
}

/** The process ids that a master has had, the latest last. */
function pidsOf(master: Master): number[] {
  const lines = readFileSync(join(data, "logs", `${master}.log`), "utf8").split("\n");
  const ready = lines.filter((line) => line.includes('"msg":"ready"'));
  return ready.map((line) => (JSON.parse(line) as { pid: number }).pid);
}

/** `eventually`, where a master may not answer yet. */
const settles = (condition: () => Promise<boolean>) =>
  eventually(() => condition().catch(() => false), String(condition));

describe("heddle up --masters 3", () => {
  it("gives the CLI a key for every master", async () => {
    for (const at of MASTERS.keys()) {
      const flags = ["cluster", "status", "--endpoint", `http://127.0.0.1:${port + at}`];
      const asked = new DrivenProcess([process.execPath, CLI, ...flags], { HEDDLE_DATA: data });
      expect(await asked.end(), asked.stderr).toBe(0);
    }
    const list = new DrivenProcess([process.execPath, CLI, "endpoints", "list"], {
      HEDDLE_DATA: data,
    });
    expect(await list.end(), list.stderr).toBe(0);
    const used = list.stdout.split("\n").slice(1, 4);
    expect(used.map((line) => /:(\d+) +credentials file +(yes|no)$/.exec(line)?.slice(1))).toEqual([
      [`${port}`, "yes"],
      [`${port + 1}`, "no"],
      [`${port + 2}`, "no"],
    ]);
  });

  // holds: masters-no-change-lost
  it("loses no accepted change when any one master is killed, and restarts it", async () => {
    await createKey("master-1", "before all");
    for (const [at, victim] of MASTERS.entries()) {
      const others = MASTERS.filter((name) => name !== victim);
      const pids = pidsOf(victim);
      await createKey(victim, `by ${victim} before its end`);
      process.kill(pids.at(-1) ?? 0, "SIGKILL");
      await createKey(others[at % 2] as Master, `without ${victim}`);
      await settles(async () => pidsOf(victim).length === pids.length + 1);
      const reply = await request(victim, "GET", "/keys?consistency=strong&limit=1000");
      const names = ((await reply.json()) as { data: { name: string }[] }).data.map(
        ({ name }) => name,
      );
      expect(names.filter((name) => created.has(name)).sort()).toEqual([...created].sort());
    }
    expect(up.stderr).toMatch(/master-1 .*killed by SIGKILL; restarting in/);
  });

  // holds: masters-inference-without-quorum
  it("answers inference while no master can make a change", async () => {
    const serving: Master = "master-2";
    const stopped = MASTERS.filter((name) => name !== serving).map((name) => pidsOf(name).at(-1));
    for (const pid of stopped) process.kill(pid ?? 0, "SIGSTOP");
    let refusal: number | undefined;
    const change = request(serving, "PUT", "/cluster/settings/job_timeout", { value: 60 });
    const answered = held(
      change.then(({ status }) => {
        refusal = status;
      }),
    );
    try {
      for (let call = 0; call < 5; call++) {
        const reply = await chat(serving, { max_tokens: 8 });
        expect(reply.status).toBe(200);
        expect(await reply.json()).toMatchObject({ usage: { completion_tokens: 8 } });
      }
      // It is still waiting, or was refused already.
      expect([undefined, 503]).toContain(refusal);
    } finally {
      for (const pid of stopped) process.kill(pid ?? 0, "SIGCONT");
    }
    await answered;
    await leader();
  });

  // holds: masters-inference-without-quorum
  it("continues a stream through one master when the leader is killed", async () => {
    const first = await leader();
    const serving = MASTERS.find((name) => name !== first) as Master;
    const reply = await chat(serving, { n: 4, max_tokens: 4_000, stream: true });
    expect(reply.status).toBe(200);
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    let text = "";
    const read = async (events: number) => {
      for (let seen = 0; seen < events; seen++) {
        const { done, value } = await reader.read();
        expect(done, text.slice(-500)).toBe(false);
        text += decoder.decode(value, { stream: true });
      }
    };
    await read(5);
    const before = await statusOf(serving);
    process.kill(pidsOf(first).at(-1) ?? 0, "SIGKILL");
    await settles(async () => {
      const next = await statusOf(serving);
      // The killed one is soon back, and may lead again.
      return next.leader !== null && next.term > before.term;
    });
    // Longer than the buffers of this reader can hold.
    await read(300);
    await reader.cancel();
    expect(text).not.toContain("event: error");
    expect(text).not.toMatch(/"finish_reason":"/);
  });

  // holds: serving-idle-unload
  it("puts an idle model to sleep under each leader, and any master wakes it", async () => {
    const id = "elastic";
    const first = await leader();
    const [other] = MASTERS.filter((name) => name !== first) as [Master];
    const scaling = { min: 0, max: 1, idle_unload_s: 1 };
    const body = { id, source: "builtin://tiny?seed=9", scaling };
    expect((await request(first, "POST", "/models", body)).status).toBe(200);
    const wanted = async () => {
      const reply = await request(other, "GET", `/models/${id}`);
      return ((await reply.json()) as { wanted_replicas: number }).wanted_replicas;
    };
    await settles(async () => (await wanted()) === 0);
    const pids = pidsOf(first);
    process.kill(pids.at(-1) ?? 0, "SIGKILL");
    // It waits at a master for a replica, which a leader starts.
    const woken = await chat(other, { model: id, max_tokens: 4 });
    expect([woken.status, await woken.json()]).toMatchObject([
      200,
      { usage: { completion_tokens: 4 } },
    ]);
    const next = await leader();
    expect(next).not.toBe(first);
    await settles(async () => (await wanted()) === 0);
    // The leader has no call that waits, and leaves the replica to the master that has one.
    const [bystander] = MASTERS.filter((name) => name !== next) as [Master];
    expect((await chat(bystander, { model: id, max_tokens: 4 })).status).toBe(200);
    await settles(async () => pidsOf(first).length === pids.length + 1);
  });
});
