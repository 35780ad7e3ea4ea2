import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import { StepRing } from "../protocol/step-ring.ts";
import type { ThreadCommand, ThreadEvent, ThreadStart } from "../protocol/thread-messages.ts";
import { BatchLoop } from "./batch-loop.ts";
import { type LoadedModel, loadModel } from "./model.ts";

/** How long the thread sleeps at most when nothing wakes it. */
const IDLE_WAIT_MS = 60_000;

/**
 * The thread that owns the model: it alone calls `llama_decode`. It never returns to its event
 * loop; commands are taken between steps, and sleep is a wait on the `wake` number.
 */
function run(start: ThreadStart): void {
  let model: LoadedModel;
  try {
    const loading = loadModel(start);
    model = loading.model;
    const loop = new BatchLoop(model, new StepRing(start.steps), cpuMs);
    post({
      kind: "ready",
      info: loading.info,
      abilities: loading.abilities,
      vocabulary: loading.table,
      chatTemplate: loading.chatTemplate,
      kvTokens: model.limits.kvTokens,
      maxSequences: model.limits.maxSequences,
      load: loop.load,
    });
    serve(loop, new Int32Array(start.wake));
  } catch (error) {
    const { code, message } = toAppError(error);
    post({
      kind: "fatal",
      error: { code: code === "server_error" ? "engine_failed" : code, message },
    });
  }
}

function serve(loop: BatchLoop, wake: Int32Array): never {
  const port = commandPort();
  let drained = 0;
  for (;;) {
    // Read before draining: a command that comes later changes it, so the wait returns at once.
    const seen = Atomics.load(wake, 0);
    for (let item = seen !== drained && receiveMessageOnPort(port); item; ) {
      loop.command(item.message as ThreadCommand, performance.now());
      item = receiveMessageOnPort(port);
    }
    drained = seen;
    const step = loop.step(performance.now());
    if (step !== undefined) port.postMessage(step satisfies ThreadEvent);
    if (loop.isIdle) Atomics.wait(wake, 0, seen, IDLE_WAIT_MS);
  }
}

/** Processor time of this thread: what other processes take of a shared core does not count. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function commandPort() {
  if (parentPort === null) throw new Error("engine-thread runs as a worker thread only");
  return parentPort;
}

function post(event: ThreadEvent): void {
  commandPort().postMessage(event);
}

run(workerData as ThreadStart);
