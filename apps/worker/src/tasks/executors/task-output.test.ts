import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../../test/test-leader.ts";
import { OutputCopier, OutputPipes } from "./output-copier.ts";
import { ProcessScan } from "./process-scan.ts";

/** The number of processes that copy output of the node's tasks. */
function copiers({ nodeId }: { readonly nodeId: string }): number {
  const all = ProcessScan.now().marked("HEDDLE_OUTPUT_OF");
  return all.filter(({ mark }) => mark.startsWith(`${nodeId}/`)).length;
}

const numbers = (to: number) => Array.from({ length: to }, (_, i) => `${i + 1}\n`).join("");

// holds: logs-streams, task-exit-reason
test.concurrent("output: by a stream's name it is whole and ordered, even after a SIGKILL", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const lines = [
    "echo 1; echo 2 > /dev/stdout; seq 3 20000; echo 20001 > /proc/self/fd/1",
    "seq 20002 39999 > /dev/fd/1; echo a > /dev/stderr; echo b | tee /dev/stderr > /dev/null",
    ": > /dev/stdout; : > /dev/stderr; echo c >&2; echo 40000; kill -9 $$",
  ];
  await session.start(shell(lines.join("; ")));
  const stubborn = "trap '' TERM; echo up; (trap '' TERM; sleep 600) & wait; wait";
  await session.start(shell(stubborn), taskId(1));
  await session.start(shell("sleep 600 & echo done; exit 137"), taskId(2));
  expect((await session.reaches("exited")).exit?.signal).toBe("SIGKILL");
  expect((await session.reaches("exited", taskId(2))).exit).toMatchObject({
    exitCode: 137,
    signal: "",
  });
  await until("the second is up", () => leader.log(1) === "up\n");
  expect(copiers(leader)).toBeGreaterThan(0);
  session.send({ stop: { task: taskId(1), checkpoint: false, graceMs: 100, why: "cancelled" } });
  expect((await session.reaches("exited", taskId(1))).exit?.asked).toBe(true);
  expect(copiers(leader)).toBe(0);
  const isWhole = () => leader.isComplete() && leader.isComplete(0, "stderr");
  await until("both logs are complete", isWhole);
  expect(leader.log()).toBe(numbers(40_000));
  expect(leader.log(0, "stderr")).toBe("a\nb\nc\n");
  await until("the third's log is complete", () => leader.isComplete(2));
  expect(leader.log(2)).toBe("done\n");
});

// holds: logs-streams
test.concurrent("output: kill -9 of the worker loses no byte of it", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const end = join(leader.folder, "end");
  const line = `i=0; until [ -e ${end} ]; do i=$((i+1)); echo $i; echo $i > /dev/stderr; sleep 0.01; done`;
  await leader.open().start(shell(line));
  await until("lines come", () => leader.log().length > 20);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  expect(copiers(leader)).toBeGreaterThan(0);
  await leader.startWorker();
  const next = leader.open(2);
  const before = leader.log().length;
  await until("lines come again", () => leader.log().length > before + 20);
  writeFileSync(end, "");
  expect((await next.reaches("exited")).exit?.exitCode).toBe(0);
  expect(copiers(leader)).toBe(0);
  await until("the logs are complete", () =>
    ["stdout", "stderr"].every((stream) => leader.isComplete(0, stream)),
  );
  const count = leader.log().split("\n").length - 1;
  expect(leader.log()).toBe(numbers(count));
  expect(leader.log(0, "stderr")).toBe(numbers(count));
});

test.concurrent("output: an open pipe delays the end for a bounded time, and the log shows it", async ({
  onTestFinished,
}) => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-output-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const streams = { stdout: join(folder, "out"), stderr: join(folder, "err") };
  const files = { root: folder, ...streams };
  const pipes = OutputPipes.open();
  const copier = await pipes.copyTo(files, `${folder}/a`);
  const stray = openSync(`/proc/self/fd/${pipes.writeEnds[0]}`, constants.O_WRONLY);
  for (const end of pipes.writeEnds) writeSync(end, "said\n");
  pipes.close();
  const read = (path: string) => readFileSync(path, "utf8");
  await until("both are copied", () =>
    Object.values(streams).every((path) => read(path) === "said\n"),
  );
  await copier.drained(100);
  await until("no process copies", () => copiers({ nodeId: folder }) === 0);
  closeSync(stray);
  expect(read(files.stdout)).toBe("said\n");
  expect(read(files.stderr)).toMatch(/^said\n\n\[heddle: a process .* is not kept\]\n$/);
});

test.concurrent("copier: one of an earlier process is awaited, or swept", async ({
  onTestFinished,
}) => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-output-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const streams = { stdout: join(folder, "out"), stderr: join(folder, "err") };
  const files = { root: folder, ...streams };
  const marks = ["a", "b"].map((name) => `${folder}/${name}`);
  const all = marks.map(() => OutputPipes.open());
  for (const [i, pipes] of all.entries()) await pipes.copyTo(files, marks[i] ?? "");
  for (const pipes of all) writeSync(pipes.writeEnds[0], "x".repeat(60_000));
  all[0]?.close();
  await OutputCopier.find(files, marks[0] ?? "").drained(60_000);
  expect(readFileSync(files.stdout).byteLength).toBeGreaterThanOrEqual(60_000);
  expect(copiers({ nodeId: folder })).toBeGreaterThan(0);
  OutputCopier.sweep(ProcessScan.now(), `${folder}/`, new Set(["a"]));
  await until("no process copies", () => copiers({ nodeId: folder }) === 0);
  all[1]?.close();
});
