import { appendFileSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import { TaskLog } from "@heddle/storage/task-log";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { shell, TestLeader } from "../../test/test-leader.ts";
import { LogShipper } from "./log-shipper.ts";

const mark = /\(gone\)\n\[heddle: the program emptied its own output, .* is lost\]\n/;

let leader: TestLeader;

beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
});

afterEach(() => leader.close());

/** The size of the task's file; 0 where there is none. */
function sizeOf(stream: string): number {
  return statSync(logFile(stream), { throwIfNoEntry: false })?.size ?? 0;
}

function logFile(stream: string): string {
  return join(leader.folder, "worker/jobs/job_A/1.0/logs", stream);
}

test("truncated output: the rest is shipped, also by the next worker", async () => {
  const worker = await leader.startWorker();
  const session = leader.open();
  const file = (name: string) => join(leader.folder, name);
  const [go, emptied, end] = [file("go"), file("emptied"), file("end")];
  const wait = (path: string) => `until [ -e ${path} ]; do sleep 0.05; done`;
  const write = `echo first; seq 1000; ${wait(go)}; seq 1001 900000; ${wait(emptied)}; echo after`;
  await session.start(shell(`${write}; ${wait(end)}; echo end`));
  await until("the first lines came", () => leader.log().endsWith("\n1000\n"));
  leader.stall();
  writeFileSync(go, "");
  await until("much was written", () => sizeOf("stdout") > 6_000_000);
  await until("all was written", () => {
    const size = sizeOf("stdout");
    return size > 6_000_000 && readFileSync(logFile("stdout"), "latin1").endsWith("\n900000\n");
  });
  await delay(500);
  truncateSync(logFile("stdout"));
  writeFileSync(emptied, "");
  leader.unstall();
  await until("what follows was received", () => leader.log().endsWith("after\n"));
  // The leader has tildes for lost bytes.
  const log = leader.log().replace(/~+/, "(gone)\n");
  expect(log.slice(0, 10)).toBe("first\n1\n2\n");
  expect(log.slice(-300)).toMatch(mark);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  await leader.startWorker();
  const next = leader.open(2);
  await until("the task was adopted", () => next.inventory !== undefined);
  writeFileSync(end, "");
  const { exit } = await next.reaches("exited");
  await until("the log is complete", () => leader.isComplete());
  expect(leader.log().slice(-100)).toMatch(/is lost\]\nafter\nend\n$/);
  expect(exit?.lastLines.slice(-2)).toEqual(["after", "end"]);
  expect(exit?.lastLines.join("\n")).toContain("[heddle: the program emptied its own output");
});

test("truncated output: a file that has shrunk is not read again and again", async () => {
  const path = join(leader.folder, "stdout");
  const log = await TaskLog.open(path);
  appendFileSync(path, "first\nsecond\n");
  await log.observe(() => Date.now());
  truncateSync(path, 0);
  const id = { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 };
  const reads = vi.spyOn(log, "read");
  const shipper = new LogShipper(
    {
      master: leader.address,
      credentials: leader.credentials,
      nodeId: "node",
      whileRemoved: () => Promise.resolve(),
      log: { info() {}, warn() {}, error() {} },
    },
    {
      logs: () => [{ id, grant: "", stream: "stdout", log }],
      onDurable: () => {},
      onShipped: () => {},
    },
  );
  try {
    await until("it was tried", () => reads.mock.calls.length > 0);
    await delay(1_000);
    expect(reads.mock.calls.length).toBeLessThan(50);
    await log.observe(() => Date.now());
    await log.finish();
    shipper.wake();
    await until("the log is complete", () => leader.isComplete());
    expect(leader.log()).toMatch(/^~+\[heddle: the program emptied its own output/);
  } finally {
    await shipper.close();
    await log.close();
  }
});
