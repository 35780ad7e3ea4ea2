// holds: bound-state-heap

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { SCRIPTED_MASTER } from "@heddle/base/testing/programs";
import { encodeProposal } from "@heddle/consensus/proposals/entry-codec";
import { DurableLog } from "@heddle/consensus/replica/durable-log";
import { jobId, jobSpec } from "@heddle/control/jobs/testing/specs";
import type { Message } from "@heddle/raft/core/message";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ControlMachine } from "../../control-plane/raft/control-machine.ts";

// Masters with a small heap, so that little data fills it.

const HEAP_MIB = 220;
const TIMEOUT_MS = 120_000;
const TEST_MS = 600_000;

/** A master as a process. */
class Master {
  readonly child: ChildProcess;
  output = "";

  constructor(flags: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.child = spawn(
      process.execPath,
      [
        `--max-old-space-size=${HEAP_MIB}`,
        ...SCRIPTED_MASTER,
        "--data",
        join(folder, "data"),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
        "--profile",
        "tiny",
        "--bootstrap-key-file",
        join(folder, "key"),
        ...flags,
      ],
      { env: { ...process.env, ...env } },
    );
    for (const stream of [this.child.stdout!, this.child.stderr!]) {
      stream.setEncoding("utf8").on("data", (text: string) => (this.output += text));
    }
    started.push(this);
  }

  /** The line of its log with the message. */
  async said(message: string): Promise<Record<string, string>> {
    const find = () => this.output.split("\n").find((line) => line.includes(message));
    await eventually(
      () => find() !== undefined || this.child.exitCode !== null,
      undefined,
      TIMEOUT_MS,
    );
    const line = find();
    if (line === undefined) throw new Error(`it did not say ${message}: ${this.output}`);
    return JSON.parse(line) as Record<string, string>;
  }

  async ready(): Promise<Api> {
    return new Api((await this.said('"msg":"ready"'))["http"]!);
  }

  async end(signal: NodeJS.Signals): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    const exited = once(this.child, "exit");
    this.child.kill(signal);
    return ((await exited) as [number | null])[0];
  }
}

class Api {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async call(method: string, path: string, body?: unknown) {
    const authorization = `Bearer ${readFileSync(join(folder, "key"), "utf8").trim()}`;
    const reply = await fetch(this.#url + path, {
      method,
      headers: { authorization, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await reply.text();
    return { status: reply.status, text, json: () => JSON.parse(text) };
  }

  async setting(): Promise<number> {
    return (await this.call("GET", "/api/v1/cluster/settings/state_mib")).json().value;
  }

  async jobs(): Promise<number> {
    const text = (await this.call("GET", "/metrics")).text;
    const counts = text.matchAll(/^heddle_cluster_jobs\{.*\} (\d+)$/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }
}

let folder: string;
const started: Master[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-memory-"));
});
afterEach(async () => {
  for (const master of started.splice(0)) await master.end("SIGKILL");
  rmSync(folder, { recursive: true });
});

test(
  "small heap: the master refuses jobs before it is full, and replays them",
  async () => {
    const first = new Master([]);
    const api = await first.ready();
    await expect.poll(() => api.setting(), { timeout: TIMEOUT_MS }).toBeLessThan(HEAP_MIB / 2);
    const raised = { value: HEAP_MIB };
    const path = "/api/v1/cluster/settings/state_mib";
    const refused = await api.call("PUT", path, raised);
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining("max-old-space")]);
    const config = { text: "x".repeat(250_000) };
    let status = 202;
    let taken = 0;
    while (taken < 2_000) {
      const body = { name: `job-${taken}`, algorithm: "own", config };
      status = (await api.call("POST", "/api/v1/jobs", body)).status;
      if (status !== 202) break;
      taken++;
    }
    expect(status).toBe(507);
    const metrics = (await api.call("GET", "/metrics")).text;
    expect(metrics).toMatch(/^heddle_state_refusals_total\{.*kind="jobs".*\} 1$/m);
    await first.end("SIGKILL");
    const second = await new Master([]).ready();
    expect(await second.jobs()).toBe(taken);
  },
  TEST_MS,
);

/** Appends jobs to the stopped master's log, as a build without bounds accepted them. */
async function appendJobs(count: number): Promise<void> {
  const directory = join(folder, "data", "control");
  const { cluster, id } = JSON.parse(readFileSync(join(directory, "identity.json"), "utf8"));
  const log = await DurableLog.open({
    files: nodeStorageFiles,
    directory,
    owner: { cluster, node: String(id) },
    restore: () => Promise.resolve(),
    onDamaged: (error) => {
      throw error;
    },
  });
  const { hardState } = log.memory.initialState();
  const last = log.memory.lastIndex();
  const text = "x".repeat(3_900_000);
  for (let n = 1; n <= count; n++) {
    const spec = jobSpec({ name: `old-${n}`, algorithm: "own", config: { text: n + text } });
    const command = { type: "job.submit", atMs: Date.now(), jobId: jobId(n), spec } as const;
    const proposal = { node: 9, incarnation: 1, sequence: n };
    const data = encodeProposal(
      proposal,
      new ControlMachine().encode({ type: "control", command }),
    );
    const entry = { type: "EntryNormal", term: hardState.term, index: last + n, data };
    await log.write({ ...hardState, commit: last + n, entries: [entry] } as unknown as Message);
  }
  await log.close();
}

test(
  "log larger than the heap: the master says what to do, and that works",
  async () => {
    const older = { HEDDLE_TEST_NEWEST_VERSION: "1" };
    const old = new Master([], older);
    await old.ready();
    await old.end("SIGTERM");
    await appendJobs(40);

    const halted = new Master(["--max-heap-mib", `${HEAP_MIB}`], older);
    const { http, msg } = await halted.said("serves nothing");
    expect(msg).toContain("NODE_OPTIONS=--max-old-space-size");
    const api = new Api(`http://${http}`);
    expect((await api.call("GET", "/healthz")).status).toBe(200);
    const ready = await api.call("GET", "/readyz");
    expect([ready.status, ready.text]).toEqual([503, expect.stringContaining(msg!)]);
    const models = await api.call("GET", "/api/v1/models");
    expect([models.status, models.json().error.code]).toEqual([503, "insufficient_memory"]);
    expect(await halted.end("SIGTERM")).toBe(0);

    const larger = new Master(["--max-heap-mib", "1000"], older);
    const again = await larger.ready();
    expect(larger.output).toContain("starting again with a larger heap");
    expect(await again.jobs()).toBe(40);
    expect(await larger.end("SIGTERM")).toBe(0);
  },
  TEST_MS,
);
