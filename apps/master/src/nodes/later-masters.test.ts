// holds: ops-node-later-masters

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, describe, expect, it } from "vitest";
import { LiveNodes } from "../../test/live-nodes.ts";
import { MasterGroup, REAL_MASTER } from "../../test/master-group.ts";

// Nodes that were started with the address of one master, under TLS, in a group that grows.

const FIRST = "master-1";
const LATER = ["master-2", "master-3"];

let group: MasterGroup;
let nodes: LiveNodes;
afterEach(async () => {
  await nodes.close();
  await group.close();
});

async function get<T>(master: string, path: string): Promise<T> {
  return (await (await group.request(master, "GET", `/api/v1/${path}`)).json()) as T;
}

interface Attached {
  readonly workers: { readonly attached: number };
  readonly parameter_servers: { readonly attached: number };
}

/** Resolves when both nodes are attached to the master. */
async function bothAttach(master: string): Promise<void> {
  let seen: Attached | undefined;
  await eventually(
    async () => {
      seen = await get<Attached>(master, "cluster/status");
      return seen.workers.attached === 1 && seen.parameter_servers.attached === 1;
    },
    () => `both nodes are attached to ${master}: ${JSON.stringify(seen)}`,
  );
}

/** The flags of a node with a certificate. */
async function tlsFlags(role: string, name: string): Promise<string[]> {
  const path = "/api/v1/cluster/join-tokens";
  const reply = await group.change(FIRST, "POST", path, { role, name });
  const file = join(group.folder, `${name}.token`);
  writeFileSync(file, ((await reply.json()) as { token: string }).token);
  return ["--tls", "--join-token-file", file];
}

/** Resolves when the group has this many masters, and all vote. */
async function isOf(voters: number): Promise<void> {
  await eventually(async () => {
    const { masters } = await group.status(group.runningNames[0] ?? "");
    return masters.length === voters && masters.every(({ role }) => role !== "learner");
  }, `${voters} masters vote`);
}

async function remove(name: string, through: string): Promise<void> {
  const ended = group.ending(name);
  await group.change(through, "DELETE", `/api/v1/cluster/masters/${name}`);
  await ended;
  await isOf(LATER.length);
}

/** Runs a command as a job; resolves with its output as another master has it. */
async function outputOf(
  command: string,
  [by = "", other = ""]: readonly string[],
): Promise<string> {
  const spec = { name: "job", command, resources: { cpu_cores: 0.2, memory_gb: 0.2 } };
  const reply = await group.change(by, "POST", "/api/v1/jobs", spec);
  const { job_id: id } = (await reply.json()) as { job_id: string };
  let job: unknown;
  await eventually(
    async () => {
      job = await get(by, `jobs/${id}`);
      return (job as { state: string }).state === "succeeded";
    },
    () => `the job has succeeded: ${JSON.stringify(job)}`,
  );
  return (await group.request(other, "GET", `/api/v1/jobs/${id}/logs`)).text();
}

describe("nodes of a group that grows", { timeout: 400_000 }, () => {
  it("later masters: nodes find them, and work for them without the first", async () => {
    group = new MasterGroup(1, ["--tls"], () => ({}), REAL_MASTER);
    await group.startAll();
    nodes = new LiveNodes(group, [await group.address(FIRST)]);
    await nodes.startWorker("w", await tlsFlags("worker", "w"));
    await nodes.startParameterServer("p", await tlsFlags("parameter-server", "p"));
    await bothAttach(FIRST);
    for (const [at, name] of LATER.entries()) {
      await group.start(name);
      await isOf(at + 2);
    }
    for (const name of LATER) await bothAttach(name);
    await remove(FIRST, FIRST);
    expect(await outputOf("echo woven", LATER)).toBe("woven\n");
    // With a majority of the masters the worker has released the task.
    for (const name of LATER) await bothAttach(name);
  });
});
