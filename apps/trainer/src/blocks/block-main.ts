import { text } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { BlockOrders } from "@heddle/contracts/trainer/block-orders";
import { end, exitWithError, expectPlugins, installExitHandlers } from "../run/exit-handlers.ts";

// The process of one step of a plugin's block. Its orders are JSON on standard input; SIGTERM ends it.

/** As a shell reports a program that SIGTERM ended. */
const LEFT = 143;
const leaving = new AbortController();

installExitHandlers();
// A request for a checkpoint: those that the block yields come by themselves.
for (const signal of ["SIGUSR1", "SIGUSR2", "SIGHUP"] as const) process.on(signal, () => undefined);
process.once("SIGTERM", () => leaving.abort(new AppError("cancelled", "asked to leave")));

try {
  const { runBlock } = await import("./block-runner.ts");
  const { createTaskLogger } = await import("../run/task-logger.ts");
  const orders = JSON.parse(await text(process.stdin)) as BlockOrders;
  expectPlugins([orders.entry]);
  await runBlock(orders, leaving.signal, createTaskLogger());
} catch (error) {
  if (leaving.signal.aborted) end(LEFT);
  exitWithError(error);
}
// What the plugin left open must not keep the process alive.
end(0);
