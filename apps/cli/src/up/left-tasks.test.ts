// holds: start-left-tasks, task-second-kill

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, afterEach, expect, test } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// The end of a real `heddle up` whose worker cannot end its tasks itself.

const MAIN = programOf("cli");
const scratch = mkdtempSync(join(tmpdir(), "heddle-up-left-"));
/** Two deliveries of one Ctrl-C count as one, so a second one comes later. */
const SECOND_PRESS_MS = 1_000;
let cluster: DrivenProcess | undefined;
let starts = 0;

afterEach(async () => {
  cluster?.child.kill("SIGKILL");
  await cluster?.end();
});
afterAll(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

/** Processes whose arguments contain the text. */
function processesWith(text: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0").includes(text);
      } catch {
        return false; // It has ended.
      }
    })
    .map(Number);
}

/** A cluster of one worker with a running task; the task sleeps for this many seconds. */
async function upWithTask(seconds: string) {
  const [port, data] = [await freePort(), join(scratch, `data-${++starts}`)];
  const place = ["--data", data, "--port", String(port), "--profile", "tiny"];
  const nodes = ["--workers", "1", "--parameter-servers", "0"];
  const up = new DrivenProcess([process.execPath, MAIN, "up", ...place, ...nodes], {
    HEDDLE_DRAIN_MS: "300",
  });
  cluster = up;
  await up.printed(/Ctrl-C stops everything/);
  const key = readFileSync(join(data, "bootstrap-key"), "utf8").trim();
  // The second process leaves the session of its task.
  const line = `setsid sleep ${seconds} & exec sleep ${seconds}`;
  const reply = await fetch(`http://127.0.0.1:${port}/api/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      name: "sleeper",
      command: ["sh", "-c", line],
      resources: { cpu_cores: 0.2, memory_gb: 0.5 },
    }),
  });
  expect(reply.status, await reply.clone().text()).toBe(202);
  await eventually(() => processesWith(seconds).length === 2, "both processes of the task run");
  const [worker = 0] = processesWith("worker-1").filter((pid) => isChild(pid, up));
  return { up, worker };
}

function isChild(pid: number, of: DrivenProcess): boolean {
  const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1];
  return Number(parent) === of.child.pid;
}

test("heddle up, Ctrl-C: the tasks of a killed worker have ended", async () => {
  const seconds = String(2_000_000 + process.pid);
  const { up, worker } = await upWithTask(seconds);
  process.kill(worker, "SIGSTOP");
  up.child.kill("SIGINT");
  expect(await up.end()).toBe(0);
  expect(processesWith(seconds)).toEqual([]);
});

test("heddle up, second Ctrl-C: no task outlives the forced end", async () => {
  const seconds = String(3_000_000 + process.pid);
  const { up, worker } = await upWithTask(seconds);
  process.kill(worker, "SIGSTOP");
  up.child.kill("SIGINT");
  setTimeout(() => up.child.kill("SIGINT"), SECOND_PRESS_MS);
  expect(await up.end()).toBe(0);
  expect(processesWith(seconds)).toEqual([]);
});
