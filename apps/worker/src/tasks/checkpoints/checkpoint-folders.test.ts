// holds: life-checkpoints-kept

import { existsSync, readdirSync } from "node:fs";
import { mkdir, mkdtemp, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Log } from "@heddle/observability/logger";
import { expect, onTestFinished, test } from "vitest";
import { CheckpointFolders } from "./checkpoint-folders.ts";

const DAY_MS = 24 * 3_600_000;
const ignore = () => undefined;

/** A root with the folders of jobs that the cluster `ours` has claimed, and one that runs. */
async function newFolders(jobs: readonly string[]) {
  const root = await mkdtemp(join(tmpdir(), "heddle-folders-"));
  onTestFinished(() => rm(root, { recursive: true }));
  const logged: unknown[] = [];
  const warn = (fields: object) => logged.push(fields);
  const log: Log = { info: ignore, warn, error: ignore };
  const folders = new CheckpointFolders(root, (id) => id === "job_Runs", log);
  folders.cluster = "ours";
  for (const id of jobs) {
    await mkdir(join(root, id, "c1"), { recursive: true });
    await folders.claim(id);
  }
  const age = async (id: string, days: number) => {
    const at = new Date(Date.now() - days * DAY_MS);
    for (const name of ["c1", ".heddle-cluster", "."]) {
      const path = join(root, id, name);
      if (existsSync(path)) await utimes(path, at, at);
    }
  };
  return { root, folders, age, logged };
}

test("forgotten jobs: folders are removed after a week; unclaimed ones are logged", async () => {
  const jobs = ["job_Old", "job_Young", "job_Touched", "job_Runs", "job_Theirs", "job_Nobodys"];
  const { root, folders, age, logged } = await newFolders(jobs);
  await writeFile(join(root, "job_Theirs", ".heddle-cluster"), "theirs");
  await rm(join(root, "job_Nobodys", ".heddle-cluster"));
  for (const id of jobs) await age(id, id === "job_Young" ? 6 : 8);
  await utimes(join(root, "job_Touched", "c1"), new Date(), new Date());
  for (const _again of [1, 2]) folders.forget([], [], jobs);
  await folders.next();
  const advice = expect.stringContaining("write the cluster's id (ours)");
  expect(logged).toEqual([{ job: "job_Nobodys", directory: join(root, "job_Nobodys"), advice }]);
  expect(readdirSync(root).sort()).toEqual(jobs.filter((id) => id !== "job_Old").sort());
});

test("forgotten jobs: none is removed before a leader has named its cluster", async () => {
  const { root, folders, age } = await newFolders(["job_A"]);
  await age("job_A", 30);
  folders.cluster = "";
  folders.forget([], [], ["job_A"]);
  await folders.next();
  expect(readdirSync(root)).toEqual(["job_A"]);
});

test("running jobs: are claimed for this cluster, whatever the claim was", async () => {
  const { root, folders, age } = await newFolders(["job_A"]);
  await writeFile(join(root, "job_A", ".heddle-cluster"), "theirs");
  await folders.claim("job_A");
  await age("job_A", 8);
  folders.forget([], [], ["job_A"]);
  await folders.next();
  expect(readdirSync(root)).toEqual([]);
});

test("removal: a folder with only its claim is empty; an interrupted one continues", async () => {
  const { root, folders } = await newFolders(["job_A", "job_B"]);
  await rm(join(root, "job_A", "c1"), { recursive: true });
  await mkdir(join(root, ".over-job_C", "c1"), { recursive: true });
  folders.forget([], ["job_A", "job_B"], []);
  expect(await folders.next()).toEqual(["job_B"]);
  expect(readdirSync(root)).toEqual(["job_B"]);
});
