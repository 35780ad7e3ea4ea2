// holds: metrics-history

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { JobMetrics } from "@heddle/contracts/api/job-replies";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { JobCluster } from "../../../test/job-cluster.ts";

let cluster: JobCluster;

beforeAll(async () => {
  cluster = new JobCluster(3, { leaseMs: 30_000, nodeLostMs: 15_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
});
afterEach((context) => cluster.clear(context));
afterAll(() => cluster.close());

async function metrics(id: string, query = "", master = "master-1"): Promise<JobMetrics> {
  const path = `/api/v1/jobs/${id}/metrics${query}`;
  return (await (await cluster.masters.request(master, "GET", path)).json()) as JobMetrics;
}

const steps = (from: number, to: number, value: string) =>
  `for i in $(seq ${from} ${to}); do echo "{\\"step\\":$i,\\"loss\\":${value},\\"lr\\":0.1}" >> $HEDDLE_PROGRESS_FILE; done`;

/** Step and mean of each point. */
function pairs({ series }: JobMetrics, name: string): (readonly [number, number])[] {
  const points = series.find((each) => each.name === name)?.points ?? [];
  return points.map(({ step, mean }) => [step, mean]);
}

const range = (from: number, to: number, value: number) =>
  Array.from({ length: to + 1 - from }, (_, i) => [from + i, value] as const);

test("metrics: the whole curve, in a run, after its end and after a restart", async () => {
  const go = join(cluster.masters.folder, "go");
  const attempts = [
    `if [ $HEDDLE_ATTEMPT = 1 ]; then ${steps(1, 300, "1")}; exit 1; fi`,
    steps(201, 350, "2"),
    `until [ -e ${go} ]; do sleep 0.05; done`,
    steps(351, 400, "3"),
  ];
  const id = await cluster.submit({
    name: "curved",
    resources: { cpu_cores: 0.2, memory_gb: 0.2 },
    retry_limit: 2,
    command: attempts.join("; "),
  });
  const isThere = async (count: number) => {
    return pairs(await metrics(id, "?name=loss"), "loss").length === count;
  };
  await eventually(() => isThere(350), "the running job has its curve");
  expect(pairs(await metrics(id, "?name=loss"), "loss")).toEqual([
    ...range(1, 200, 1),
    ...range(201, 350, 2),
  ]);
  writeFileSync(go, "");
  await cluster.reaches(id, "succeeded");
  const whole = [...range(1, 200, 1), ...range(201, 350, 2), ...range(351, 400, 3)];
  for (const master of cluster.masters.names) {
    const answer = await metrics(id, "", master);
    expect(answer).toMatchObject({ object: "job_metrics", job_id: id, names: ["loss", "lr"] });
    expect(pairs(answer, "loss")).toEqual(whole);
  }
  const one = await metrics(id, "?attempt=1&name=loss");
  expect(pairs(one, "loss")).toEqual(range(1, 300, 1));
  const few = await metrics(id, "?from=101&to=300&points=10&name=lr,loss");
  const [loss] = few.series.filter(({ name }) => name === "loss");
  expect(loss?.points.length).toBeLessThanOrEqual(10);
  expect(loss?.points.reduce((sum, { count }) => sum + count, 0)).toBe(200);
  expect(loss?.points.map(({ min }) => min).at(0)).toBe(1);
  expect(loss?.points.at(-1)).toMatchObject({ step: 300, max: 2 });
  for (const master of cluster.masters.names) await cluster.masters.end(master, "SIGKILL");
  await cluster.masters.startMissing();
  expect(pairs(await metrics(id, "?consistency=strong"), "loss")).toEqual(whole);
});

test("metrics: a job without numbers has none; a wrong query is refused", async () => {
  const id = await cluster.submit({
    name: "silent",
    resources: { cpu_cores: 0.2, memory_gb: 0.2 },
    command: "true",
  });
  await cluster.reaches(id, "succeeded");
  expect(await metrics(id)).toEqual({
    object: "job_metrics",
    job_id: id,
    rank: 0,
    names: [],
    series: [],
  });
  const status = async (path: string) =>
    (await cluster.masters.request("master-1", "GET", `/api/v1/jobs/${path}`)).status;
  expect(await status("job_none/metrics")).toBe(404);
  expect(await status(`${id}/metrics?points=1`)).toBe(400);
  expect(await status(`${id}/metrics?from=a`)).toBe(400);
  expect(await status(`${id}/metrics?rank=1`)).toBe(400);
});
