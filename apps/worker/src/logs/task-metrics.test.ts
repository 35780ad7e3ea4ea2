// holds: metrics-history

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { readMetricRecord } from "@heddle/contracts/metrics/metric-record";
import { expect, test } from "vitest";
import { newLeader, shell, type TestLeader, taskId } from "../../test/test-leader.ts";

/** The values of one number that the leader has, by step. */
function seen(leader: TestLeader, name: string): [step: number, value: number][] {
  return leader
    .log(0, "metrics")
    .split("\n")
    .flatMap((line) => readMetricRecord(line) ?? [])
    .flatMap(({ last, values }) => (values[name] ? [[last, values[name].mean]] : []));
}

test("metrics: are shipped, each once, also by the next worker", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const session = leader.open();
  const [go, end] = [join(leader.folder, "go"), join(leader.folder, "end")];
  const wait = (path: string) => `until [ -e ${path} ]; do sleep 0.05; done`;
  const steps = (from: number, to: number) =>
    `for i in $(seq ${from} ${to}); do echo "{\\"step\\":$i,\\"loss\\":0.$i}" >> $HEDDLE_PROGRESS_FILE; done`;
  const line = [steps(101, 200), wait(go), steps(201, 300), wait(end), steps(301, 400)];
  await session.start(shell(line.join("; ")));
  await until("the first came", () => seen(leader, "loss").length === 100);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  writeFileSync(go, "");
  await leader.startWorker();
  const next = leader.open(2);
  await until("the task was adopted", () => next.inventory !== undefined);
  await until("the next came", () => seen(leader, "loss").length >= 200);
  expect(next.status()?.progress?.line).toContain('"step":300');
  writeFileSync(end, "");
  await next.reaches("exited");
  await until("the stream is complete", () => leader.isComplete(0, "metrics"));
  const expected = Array.from({ length: 300 }, (_, i) => [101 + i, Number(`0.${101 + i}`)]);
  expect(seen(leader, "loss")).toEqual(expected);
});

test("metrics: a task without any ships none, and its files are removed", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  await session.start(shell(`echo '{"message":"hi"}' >> $HEDDLE_PROGRESS_FILE; echo done`));
  await session.reaches("exited");
  await until(
    "the output is complete",
    () => leader.isComplete() && leader.isComplete(0, "stderr"),
  );
  session.send({ forget: { task: taskId() } });
  const folder = join(leader.folder, "worker/jobs/job_A/1.0");
  await until("its folder is removed", () => !existsSync(folder));
  expect(leader.isComplete(0, "metrics")).toBe(false);
});
