// holds: artifacts-served

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Project } from "@heddle/contracts/api/projects";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

let cluster: JobCluster;
let id: string;
/** Larger than the windows of the streams between. */
const LARGE_BYTES = 20 * 2 ** 20;
const resources = { cpu_cores: 0.2, memory_gb: 0.2 };

beforeAll(async () => {
  cluster = new JobCluster(3, { leaseMs: 30_000, nodeLostMs: 15_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1", { artifactReplica: replica() });
  id = await cluster.submit({
    name: "leaves",
    resources,
    tasks: 2,
    command: [
      "set -e; cd $HEDDLE_ARTIFACT_DIR; printf hello > greeting.txt; : > empty; mkdir sub",
      "echo of $RANK > sub/rank.txt; ln -s /etc/passwd link",
      `if [ $RANK = 0 ]; then head -c ${LARGE_BYTES} /dev/urandom > large.bin; fi`,
    ].join("\n"),
  });
  await cluster.reaches(id, "succeeded");
});
afterEach((context) => cluster.clear(context));
afterAll(() => cluster.close());

/** The directory that workers share. */
const replica = () => join(cluster.masters.folder, "shared");

async function get(path: string, headers: Record<string, string> = {}, master = "master-1") {
  return fetch(`${cluster.masters.url(master)}/api/v1/jobs/${id}/artifacts${path}`, {
    headers: { authorization: `Bearer ${cluster.masters.adminKey}`, ...headers },
  });
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

test("artifacts: are listed with size, digest and location once the job succeeded", async () => {
  await eventually(async () => {
    const answers = await Promise.all(
      cluster.masters.names.map(async (name) => (await get("", {}, name)).text()),
    );
    return answers.every((answer) => answer === answers[0] && answer.includes("large.bin"));
  }, "every master knows them");
  const { data } = (await (await get("")).json()) as { data: Record<string, unknown>[] };
  expect(data.map(({ name, rank }) => `${rank} ${name}`)).toEqual([
    "0 empty",
    "0 greeting.txt",
    "0 large.bin",
    "0 sub/rank.txt",
    "1 empty",
    "1 greeting.txt",
    "1 sub/rank.txt",
  ]);
  expect(data[1]).toMatchObject({ object: "artifact", bytes: 5, attempt: 1 });
  expect(data[1]?.["sha256"]).toBe(sha256(Buffer.from("hello")));
});

test("artifacts: are the same bytes from any master, with the digest as ETag", async () => {
  const texts = await Promise.all(
    cluster.masters.names.map(async (name) => {
      const reply = await get("/large.bin", {}, name);
      const bytes = Buffer.from(await reply.arrayBuffer());
      expect(bytes.byteLength).toBe(LARGE_BYTES);
      expect(reply.headers.get("etag")).toBe(`"${sha256(bytes)}"`);
      return sha256(bytes);
    }),
  );
  expect(new Set(texts).size).toBe(1);
});

test("artifacts: are found by name and rank, also in folders, and empty ones", async () => {
  expect(await (await get("/sub%2Frank.txt")).text()).toBe("of 0\n");
  expect(await (await get("/sub%2Frank.txt?rank=1")).text()).toBe("of 1\n");
  const empty = await get("/empty");
  expect([empty.status, await empty.text()]).toEqual([200, ""]);
});

test("artifacts: are resumed by Range, and not sent again to a client with the ETag", async () => {
  const part = await get("/greeting.txt", { range: "bytes=1-2" });
  expect([part.status, part.headers.get("content-range"), await part.text()]).toEqual([
    206,
    "bytes 1-2/5",
    "el",
  ]);
  const etag = part.headers.get("etag") ?? "";
  expect((await get("/greeting.txt", { "if-none-match": etag })).status).toBe(304);
  expect((await get("/greeting.txt", { range: "bytes=9-" })).status).toBe(416);
  const other = await get("/greeting.txt", { range: "bytes=1-", "if-range": '"another"' });
  expect([other.status, await other.text()]).toEqual([200, "hello"]);
});

test("artifacts: an unknown one is 404 with a list of those that exist", async () => {
  const reply = await get("/none");
  expect(reply.status).toBe(404);
  expect(await reply.json()).toMatchObject({
    detail: `The job ${id} has no artifact none. There are empty, greeting.txt, large.bin, sub/rank.txt.`,
  });
  expect((await get("/link")).status).toBe(404);
  expect((await get("/large.bin?rank=1")).status).toBe(404);
  expect((await get("/greeting.txt?rank=x")).status).toBe(400);
  expect((await get("/..%2F..%2Ftask.json")).status).toBe(404);
});

// holds: sec-artifact-digest
test("artifacts: one that was changed on the disk is refused", async () => {
  const kept = join(cluster.masters.folder, "worker-1", "artifacts", id, "1.0");
  expect(readdirSync(kept)).toContain("greeting.txt");
  writeFileSync(join(kept, "greeting.txt"), "jello");
  const reply = await get("/greeting.txt");
  expect(reply.status).toBe(500);
  expect(await reply.text()).toContain("it was changed");
  writeFileSync(join(kept, "greeting.txt"), "hello");
  expect(await (await get("/greeting.txt")).text()).toBe("hello");
});

// holds: sec-artifact-digest
test("artifacts: a range that was changed on the disk is refused, the rest is served", async () => {
  const kept = join(cluster.masters.folder, "worker-1", "artifacts", id, "1.0");
  const large = join(kept, "large.bin");
  const left = readFileSync(large);
  const piece = 2 ** 20;
  const at = 3 * piece + 5;
  const range = async (from: number, to: number) => {
    const reply = await get("/large.bin", { range: `bytes=${from}-${to - 1}` });
    const bytes = Buffer.from(await reply.arrayBuffer());
    return reply.status === 206 ? bytes : reply.status;
  };
  expect(await range(at, at + 2 * piece)).toEqual(left.subarray(at, at + 2 * piece));
  expect(await range(LARGE_BYTES - 7, LARGE_BYTES)).toEqual(left.subarray(-7));
  const changed = Buffer.from(left);
  changed[at] = (changed[at] ?? 0) ^ 1;
  writeFileSync(large, changed);
  expect(await range(at - 2, at + 2)).toBe(500);
  expect(await range(0, 2 * piece)).toEqual(left.subarray(0, 2 * piece));
  // Digests that match the changed bytes are not those that the task left.
  const [list = ""] = readdirSync(join(kept, "~digests"));
  const digests = readFileSync(join(kept, "~digests", list));
  createHash("sha256")
    .update(changed.subarray(3 * piece, 4 * piece))
    .digest()
    .copy(digests, 3 * 32);
  writeFileSync(join(kept, "~digests", list), digests);
  expect(await range(at - 2, at + 2)).toBe(500);
  writeFileSync(large, left);
  expect(await range(at - 2, at + 2)).toBe(500);
  createHash("sha256")
    .update(left.subarray(3 * piece, 4 * piece))
    .digest()
    .copy(digests, 3 * 32);
  writeFileSync(join(kept, "~digests", list), digests);
  expect(await range(at - 2, at + 2)).toEqual(left.subarray(at - 2, at + 2));
});

test("artifacts: a range of a small one that was changed on the disk is refused", async () => {
  const kept = join(cluster.masters.folder, "worker-1", "artifacts", id, "1.0");
  writeFileSync(join(kept, "greeting.txt"), "hellO");
  expect((await get("/greeting.txt", { range: "bytes=0-1" })).status).toBe(500);
  writeFileSync(join(kept, "greeting.txt"), "hello");
  expect(await (await get("/greeting.txt", { range: "bytes=0-1" })).text()).toBe("he");
});

test("artifacts: those of a failed task are not kept; invalid names fail their task", async () => {
  const failed = await cluster.submit({
    name: "fails",
    resources,
    command: "echo x > $HEDDLE_ARTIFACT_DIR/x; exit 3",
  });
  await cluster.reaches(failed, "failed");
  const list = await cluster.masters.request("master-1", "GET", `/api/v1/jobs/${failed}/artifacts`);
  expect(await list.json()).toEqual({ object: "list", data: [] });
  const wrong = await cluster.submit({
    name: "wrong",
    resources,
    command: 'echo x > "$HEDDLE_ARTIFACT_DIR/a:b"',
  });
  const { failure } = await cluster.reaches(wrong, "failed");
  expect(failure?.reason).toBe("Internal");
  expect(failure?.message).toMatch(/"a:b" is not a valid name/);
});

const project = async (name: string) => {
  const path = `/api/v1/projects/${name}`;
  const reply = await cluster.masters.request("master-1", "GET", path);
  return (await reply.json()) as Pick<Project, "quota"> & Partial<Project>;
};

// holds: storage-quota
test("artifacts: beyond the project's storage quota they are refused and removed", async () => {
  const set = { weight: 1, quota: { storage_bytes: 100 } };
  await cluster.masters.change("master-1", "PUT", "/api/v1/projects/small", set);
  const leave = (name: string, bytes: number) =>
    cluster.submit({
      name,
      project: "small",
      resources,
      command: `head -c ${bytes} /dev/zero > $HEDDLE_ARTIFACT_DIR/out`,
    });
  const fits = await leave("fits", 60);
  await cluster.reaches(fits, "succeeded");
  const over = await leave("over", 41);
  await cluster.reaches(over, "failed");
  const { failure } = await cluster.job(over);
  expect(failure).toMatchObject({ reason: "StorageExceeded" });
  expect(failure?.message).toContain("the project small keeps 60 bytes, this needs 41 more");
  const roots = [join(cluster.dataDirectory("worker-1"), "artifacts"), replica()];
  const has = (job: string) => roots.map((root) => existsSync(join(root, job, "1.0")));
  await eventually(() => !has(over).includes(true), "the worker removed them");
  expect(has(fits)).toEqual([true, true]);
  expect((await project("small")).usage).toMatchObject({
    storage_bytes: 60,
    storage: { documents: 0, artifacts: 60, checkpoints: 0 },
  });
});

// holds: storage-quota
test("checkpoints: their bytes count for the project while the job keeps them", async () => {
  const saves = await cluster.submit({
    name: "saves",
    project: "saver",
    resources,
    checkpoint_config: { keep: 2, interval_seconds: 60 },
    command: [
      "cd $HEDDLE_CHECKPOINT_DIR; for n in 1 2 3; do mkdir c$n; head -c 1000 /dev/zero > c$n/w",
      `echo '{"step":'$n',"checkpoint":"c'$n'"}' >> $HEDDLE_PROGRESS_FILE; sleep 1; done; sleep 600`,
    ].join("\n"),
  });
  await eventually(async () => {
    return (await project("saver")).usage?.storage.checkpoints === 2_000;
  }, "two of three checkpoints count");
  await cluster.masters.change("master-1", "DELETE", `/api/v1/jobs/${saves}`);
  await cluster.reaches(saves, "cancelled");
  expect((await project("saver")).usage?.storage_bytes).toBe(0);
});

test("artifacts: outlive their worker's process; an error names it while it is down", async () => {
  await cluster.end("worker-1", "SIGKILL");
  let text = "";
  await eventually(async () => {
    const reply = await get("/greeting.txt");
    text = await reply.text();
    return reply.status === 503;
  }, "the worker is gone");
  await eventually(async () => {
    text = await (await get("/greeting.txt")).text();
    return text.includes("not attached");
  }, "it is known as not attached");
  expect(text).toMatch(/The artifact greeting.txt lies on the worker worker-1 \(/);
  await cluster.startWorker("worker-1", { artifactReplica: replica() });
  await eventually(async () => (await get("/greeting.txt")).status === 200, "it is back");
});

// holds: artifacts-second-copy
test("artifacts: those of a worker lost with its disk come from the second copy", async () => {
  await cluster.startWorker("worker-2", { artifactReplica: replica() });
  await cluster.takesJobs("worker-2");
  const lost = await cluster.submit({
    name: "leaves-again",
    command: "echo kept > $HEDDLE_ARTIFACT_DIR/x",
    resources: { ...resources, node_affinity: { name: "worker-2" } },
  });
  await cluster.reaches(lost, "succeeded");
  await cluster.end("worker-2", "SIGKILL");
  rmSync(join(cluster.masters.folder, "worker-2"), { recursive: true, force: true });
  const path = `/api/v1/jobs/${lost}/artifacts/x`;
  await eventually(async () => {
    const replies = await Promise.all(
      cluster.masters.names.map((name) => cluster.masters.request(name, "GET", path)),
    );
    const texts = await Promise.all(replies.map((reply) => reply.text()));
    return texts.every((text) => text === "kept\n");
  }, "every master has it");
});
