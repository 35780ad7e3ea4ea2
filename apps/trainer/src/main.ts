import { text } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import { end, exitWithError, expectPlugins, installExitHandlers } from "./run/exit-handlers.ts";

// The process of one task of a training job. It blocks while it computes, and nothing else lives in
// it. Its orders come over standard input; SIGUSR1 asks for a checkpoint, SIGTERM to leave.

/** What a job may name as its checkpoint signal. */
const CHECKPOINT_SIGNALS = ["SIGUSR1", "SIGUSR2", "SIGHUP"] as const;
/** As a shell tells of a program that SIGTERM ended. */
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

const say = (line: string) => process.stdout.write(`${line}\n`);

try {
  // Loaded only now, since signals that come meanwhile are to be heard.
  const { runTrainer } = await import("./run/trainer.ts");
  const orders = JSON.parse(await text(process.stdin)) as TrainerOrders;
  expectPlugins(orders.plugins ?? []);
  await runTrainer(orders, {
    signal: leaving.signal,
    say,
    onCheckpointRequest: (take) => {
      takeCheckpoint = take;
      if (isCheckpointAsked) take();
    },
  });
} catch (error) {
  if (leaving.signal.aborted) {
    say("left, as it was asked to");
    end(LEFT);
  }
  exitWithError(error);
}
// What a library left open, as a connection that is kept alive, is not to keep the task from ending.
end(0);
