import { type ChildProcess, spawn } from "node:child_process";
import { lookup } from "node:dns/promises";
import {
  accessSync,
  appendFileSync,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { constants as system } from "node:os";
import { join } from "node:path";
import {
  CONTROL_FILES,
  type RunnerEnd,
  type RunnerEvent,
  type RunnerOrder,
  type RunnerProgram,
} from "./messages.ts";
import { isFirst, signalAll } from "./own-processes.ts";
import { ProgramOutput } from "./program-output.ts";
import { WatchedLease } from "./watched-lease.ts";

// The first process of a task's Pod, or of its job in a batch system. It runs the program, copies its output, obeys the worker's
// orders, and kills everything when the worker's lease has ended. The worker copies it to its nodes:
// it imports only what lies beside it.

const TICK_MS = 100;
const MAX_ORDERS_BYTES = 64 * 1024;
/** How long the first rank's host name may be unknown. */
const MAX_LOOKUP_MS = 60_000;
/** In a batch system: how long its program may stay after the system has asked it to end. */
const MAX_TERMINATE_MS = 30_000;
/** Between the signals of a batch system to a program and to its runner. */
const MAX_SIGNAL_GAP_MS = 1_000;
/** After the program's end: for output that a process outside the container holds open. */
const MAX_DRAIN_MS = 10_000;
const CANNOT_EXECUTE = 126;
/** Kubernetes keeps it with the Pod: the last resort on a full disk. */
const TERMINATION_LOG = "/dev/termination-log";

const folder = process.argv[2] ?? "";
const program = JSON.parse(
  readFileSync(join(folder, CONTROL_FILES.program), "utf8"),
) as RunnerProgram;
// It may have secrets. Only this process reads it, once.
rmSync(join(folder, CONTROL_FILES.program));
const lease = new WatchedLease(program.leaseFile);
let offset = 0;
let child: ChildProcess | undefined;
let isStarting = false;
let isKilling = false;
let isKilled = false;
let isLost = false;

process.on("SIGTERM", onTerminate);
// Also where this program fails: without it the lease has no effect.
process.on("exit", () => void signalAll("SIGKILL"));
say({ kind: "ready" });
setInterval(tick, TICK_MS);

function tick(): void {
  for (const order of newOrders()) obey(order);
  if (!lease.isLive) {
    isLost = true;
    kill();
  }
  if (isKilling) signalAll("SIGKILL");
}

function obey(order: RunnerOrder): void {
  if (order.kind === "start") void start();
  else if (order.kind === "signal") {
    const count = signalAll(order.signal, order.onlyCaught);
    say({ kind: "answer", id: order.id, count });
  } else {
    isKilled = true;
    kill();
  }
}

/** A stopped process gets SIGKILL too. */
function kill(): void {
  isKilling = true;
  signalAll("SIGKILL");
  if (!child) end({ kind: "end", signal: "SIGKILL", isLost, isKilled });
}

/** Kubernetes deletes the Pod, as for a node that is drained, or a batch system cancels the job. */
function onTerminate(): void {
  isLost = true;
  if (!child) end({ kind: "end", signal: "SIGTERM", isLost });
  signalAll("SIGTERM");
  // Kubernetes has a time of its own.
  if (!isFirst) setTimeout(kill, MAX_TERMINATE_MS);
}

async function start(): Promise<void> {
  if (isStarting) return;
  isStarting = true;
  try {
    await rendezvousIsKnown();
    run();
  } catch (error) {
    fail(error);
  }
}

function run(): void {
  const [out, err] = [
    new ProgramOutput(program.pipes[0], program.logs[0], 1),
    new ProgramOutput(program.pipes[1], program.logs[1], 2),
  ];
  const [name = "", ...args] = program.command;
  const cwd = program.workingDirectory || process.cwd();
  accessSync(cwd, constants.X_OK);
  const started = spawn(name, args, {
    cwd,
    env: environment(),
    detached: true,
    stdio: ["ignore", out.writeEnd, err.writeEnd],
  });
  for (const { writeEnd } of [out, err]) closeSync(writeEnd);
  child = started;
  started.once("spawn", () => say({ kind: "started" }));
  started.once("error", fail);
  started.once("exit", (code, signal) => {
    // What it has left running is part of the task.
    isKilling = true;
    const how = signal === null ? { exitCode: code ?? 0 } : { signal };
    const last = () => end({ kind: "end", ...how, isLost, isKilled });
    // A batch system that cancels its job signals the program and this process, in any order.
    const isDecided = isFirst || isLost || isKilled || (signal === null && (code ?? 0) < 128);
    const waitMs = isDecided ? 0 : MAX_SIGNAL_GAP_MS;
    void Promise.all([out.ended, err.ended]).then(() => setTimeout(last, waitMs));
    setTimeout(last, MAX_DRAIN_MS);
  });
}

function environment(): NodeJS.ProcessEnv {
  const all = { ...process.env, ...program.environment };
  try {
    accessSync(all["HOME"] ?? "", constants.W_OK);
    return all;
  } catch {
    return { ...all, HOME: program.home };
  }
}

/** Its Pod may get its address later than this one; without a name of its own nothing is awaited. */
async function rendezvousIsKnown(): Promise<void> {
  const host = program.rendezvousHost;
  const untilMs = performance.now() + MAX_LOOKUP_MS;
  while (host !== "") {
    try {
      await lookup(host);
      return;
    } catch (cause) {
      const message = `the first task's host ${host} is not in the DNS after ${MAX_LOOKUP_MS / 1_000} s`;
      if (performance.now() > untilMs) throw new Error(message, { cause });
      await new Promise((resolve) => setTimeout(resolve, TICK_MS * 5));
    }
  }
}

function fail(error: unknown): void {
  const { code, message } = error as NodeJS.ErrnoException;
  const [name] = program.command;
  const words =
    code === "ENOENT" || code === "EACCES"
      ? `the ${isFirst ? "image" : "node"} has no program ${JSON.stringify(name)} that its user ${process.getuid?.()} may run, or not the working directory ${program.workingDirectory || process.cwd()}`
      : message;
  say({ kind: "failed", message: words });
  process.exit(CANNOT_EXECUTE);
}

function end(how: RunnerEnd): void {
  say(how);
  try {
    if (isFirst) writeFileSync(TERMINATION_LOG, JSON.stringify(how));
  } catch {
    // The worker has read it from the event.
  }
  const signals: Readonly<Record<string, number>> = system.signals;
  process.exit(how.exitCode ?? 128 + (signals[how.signal ?? ""] ?? 0));
}

function say(event: RunnerEvent): void {
  try {
    appendFileSync(join(folder, CONTROL_FILES.events), `${JSON.stringify(event)}\n`);
  } catch {
    // On a full disk the container's end says it.
  }
}

/** The complete lines that were added; the worker writes each at once. */
function newOrders(): RunnerOrder[] {
  // Opened each time: a file system of a network shows only then what others have added.
  const orders = openSync(join(folder, CONTROL_FILES.orders), constants.O_RDONLY);
  try {
    return ordersIn(orders);
  } finally {
    closeSync(orders);
  }
}

function ordersIn(orders: number): RunnerOrder[] {
  const size = Math.min(fstatSync(orders).size - offset, MAX_ORDERS_BYTES);
  if (size <= 0) return [];
  const bytes = Buffer.alloc(size);
  const text = bytes.toString("utf8", 0, readSync(orders, bytes, 0, size, offset));
  const complete = text.slice(0, text.lastIndexOf("\n") + 1);
  offset += Buffer.byteLength(complete);
  return complete
    .split("\n")
    .filter((line) => line !== "")
    .flatMap((line) => {
      try {
        return [JSON.parse(line) as RunnerOrder];
      } catch {
        return [];
      }
    });
}
