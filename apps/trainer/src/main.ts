import { text } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import { end, exitWithError, expectPlugins, installExitHandlers } from "./run/exit-handlers.ts";

// The process of one task of a training job; it blocks while it computes. Its orders are JSON on
// standard input; SIGUSR1 requests a checkpoint, SIGTERM ends it.

/** The signals that a job may choose for checkpoints. */
const CHECKPOINT_SIGNALS = ["SIGUSR1", "SIGUSR2", "SIGHUP"] as const;
/** As a shell reports a program that SIGTERM ended. */
const LEFT = 143;

const leaving = new AbortController();
let takeCheckpoint: (() => void) | undefined;
let isCheckpointAsked = false;

installExitHandlers();
for (const signal of CHECKPOINT_SIGNALS) {
  process.on(signal, () => {
    isCheckpointAsked = true;
    takeCheckpoint?.();
  });
}
process.once("SIGTERM", () => leaving.abort(new AppError("cancelled", "asked to leave")));

// Loaded after the signal handlers are installed.
const { createTaskLogger } = await import("./run/task-logger.ts");
const log = createTaskLogger();

try {
  const { runTrainer } = await import("./run/trainer.ts");
  const orders = JSON.parse(await text(process.stdin)) as TrainerOrders;
  expectPlugins(orders.plugins ?? []);
  await runTrainer(orders, {
    signal: leaving.signal,
    log,
    onCheckpointRequest: (take) => {
      takeCheckpoint = take;
      if (isCheckpointAsked) take();
    },
  });
} catch (error) {
  if (leaving.signal.aborted) {
    log.info({}, "left, as it was asked to");
    end(LEFT);
  }
  exitWithError(error);
}
// Handles that a library left open, such as idle connections, must not keep the process alive.
end(0);
