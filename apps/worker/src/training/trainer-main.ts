import { text } from "node:stream/consumers";
import { AppError, toAppError } from "@heddle/base/errors";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { chooseBackend } from "./choose-backend.ts";
import { loadPlugins } from "./load-plugins.ts";
import { runTrainer } from "./trainer.ts";
import type { TrainerOrders } from "./trainer-orders.ts";

// The process of one task of a training job. It blocks while it computes, and nothing else lives in
// it. Its orders come over standard input; SIGUSR1 asks for a checkpoint, SIGTERM to leave.

/** What a job may name as its checkpoint signal. */
const CHECKPOINT_SIGNALS = ["SIGUSR1", "SIGUSR2", "SIGHUP"] as const;
/** As a shell tells of a program that SIGTERM ended. */
const LEFT = 143;

const leaving = new AbortController();
let takeCheckpoint: (() => void) | undefined;
let isCheckpointAsked = false;

for (const signal of CHECKPOINT_SIGNALS) {
  process.on(signal, () => {
    isCheckpointAsked = true;
    takeCheckpoint?.();
  });
}
process.once("SIGTERM", () => leaving.abort(new AppError("cancelled", "asked to leave")));

const say = (line: string) => process.stdout.write(`${line}\n`);

async function main(): Promise<void> {
  // A look at the device, for a worker that wants to know before it starts a task.
  if (process.argv[2] === "--check-device") {
    const device = process.argv[3] === "cuda" ? "cuda" : "cpu";
    await chooseBackend({ backend: "onnx", device }, { hasGpu: true, threads: 1 }, say);
    return;
  }
  // What plugins have, for the worker's offer.
  if (process.argv[2] === "--describe-plugins") {
    const { algorithms, environments } = await loadPlugins(process.argv.slice(3));
    const added = [...environments.keys()].filter((name) => !ENVIRONMENTS.has(name));
    say(JSON.stringify({ algorithms: [...algorithms.keys()], environments: added }));
    return;
  }
  const orders = JSON.parse(await text(process.stdin)) as TrainerOrders;
  await runTrainer(orders, {
    signal: leaving.signal,
    say,
    onCheckpointRequest: (take) => {
      takeCheckpoint = take;
      if (isCheckpointAsked) take();
    },
  });
}

try {
  await main();
} catch (error) {
  if (leaving.signal.aborted) {
    say("left, as it was asked to");
    process.exit(LEFT);
  }
  const { code, message } = toAppError(error);
  process.stderr.write(`the trainer failed (${code}): ${message}\n`);
  if (!(error instanceof AppError) && error instanceof Error) {
    process.stderr.write(`${error.stack}\n`);
  }
  process.exit(1);
}
// What a library left open, as a connection that is kept alive, is not to keep the task from ending.
process.exit(0);
