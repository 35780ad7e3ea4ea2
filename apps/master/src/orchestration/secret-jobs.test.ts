// holds: job-secrets

import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { afterAll, beforeAll, expect, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

const [FIRST, SECOND] = ["canary-one-$' 8d2f", "canary-two-77ab\nsecond line of it"];
const keys = [0, 1].map(() => randomBytes(32).toString("base64"));
const small = { cpu_cores: 0.2, memory_gb: 0.2 };

let cluster: JobCluster;
/** The keys of the master's next start. */
let held = keys.slice(0, 1);
beforeAll(async () => {
  const times = { leaseMs: 30_000, nodeLostMs: 10_000 };
  cluster = new JobCluster(1, times, () => ({ HEDDLE_SECRETS_KEY: held.join(",") }));
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
});
afterAll(() => cluster.close());

const put = (value: string) => cluster.call("PUT", "/secrets/token", { value });

/** The program checks the value without printing it: a hash of the variable is enough. */
const run = (name: string, command: string) =>
  cluster.submit({ name, command, secret_variables: { TOKEN: "token" }, resources: small });
const PRINTED = String.raw`printf '%s' "$TOKEN" | od -An -v -tx1 | tr -d ' \n'`;
const hex = (text: string) => Buffer.from(text).toString("hex");

/** Undefined for a file that the cluster has removed since it was listed. */
function bytesOf(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Files of the cluster that hold one of the texts, but for the task's own output. */
function holders(...texts: readonly string[]): string[] {
  const { folder } = cluster.masters;
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries.flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || /\/(logs|task-logs)\//.test(path)) return [];
    const bytes = bytesOf(path);
    return texts.some((text) => bytes?.includes(text)) ? [path] : [];
  });
}

test("a job's secret: reaches its tasks, and is in no file, view or last line", async () => {
  await put(FIRST);
  const id = await run("reads", `${PRINTED}; echo; echo "it is <$TOKEN>"; exit 3`);
  const job = await cluster.reaches(id, "failed");
  const text = JSON.stringify(job);
  expect(text).not.toContain("canary");
  expect(text).toContain("it is <***>");
  const logs = await cluster.logs(id, "follow=true");
  expect(logs).toBe(`${hex(FIRST)}\nit is <***>\n`);
  expect(holders(FIRST, Buffer.from(FIRST).toString("base64"))).toEqual([]);
});

test("a job's secret: the next task after a change has the new value", async () => {
  await put(SECOND);
  const id = await run("reads-again", PRINTED);
  await cluster.reaches(id, "succeeded");
  expect(await cluster.logs(id, "follow=true")).toBe(hex(SECOND));
});

test("a job's secret: outlives the secrets key that it was encrypted with", async () => {
  const [master = ""] = cluster.masters.names;
  const restart = async (given: typeof held) => {
    await cluster.masters.end(master, "SIGTERM");
    held = given;
    await cluster.masters.startAll();
    await cluster.takesJobs("worker-1");
  };
  await restart([...keys].reverse());
  const [next] = readSecretKeys(undefined, { HEDDLE_SECRETS_KEY: keys[1] }).ids;
  const identity = join(cluster.masters.directory(master), "control", "identity.json");
  await expect
    .poll(() => JSON.parse(readFileSync(identity, "utf8")).secrets, { timeout: 60_000 })
    .toEqual({ key: next, isClean: true });
  await restart(keys.slice(1));
  const id = await run("reads-under-another-key", PRINTED);
  await cluster.reaches(id, "succeeded");
  expect(await cluster.logs(id, "follow=true")).toBe(hex(SECOND));
});
