import { endProcess } from "@heddle/base/end-process";
import { ERROR_TABLE, toAppError } from "@heddle/base/errors";
import type { NodeLog } from "./log.ts";

/** Open requests may end for so long after SIGTERM. */
const drainMs = 10_000;
/** After this much more the process ends whatever hangs. */
const exitMs = 15_000;

export interface RunningNode {
  readonly nodeId: string;
  readonly address: string;
  close(drainMs: number): Promise<void>;
}

/**
 * The life of a node's process: starts it, prints the line `ready`, drains and exits 0 on SIGTERM or
 * SIGINT (at once on a second one), and exits with the error's code where it cannot start.
 */
export async function runNode(start: () => Promise<RunningNode>, log: NodeLog): Promise<void> {
  let node: RunningNode;
  try {
    node = await start();
  } catch (error) {
    const { code, message } = toAppError(error);
    log.error({ code }, message);
    process.exit(ERROR_TABLE[code].exit);
  }
  let stopping = false;
  const stop = async () => {
    if (stopping) return endProcess(1);
    stopping = true;
    log.info({ drainMs }, "stopping");
    setTimeout(() => void endProcess(1), drainMs + exitMs).unref();
    await node.close(drainMs);
    return endProcess(0);
  };
  process.on("SIGTERM", () => void stop());
  process.on("SIGINT", () => void stop());
  // Only now: who reads it may send a signal at once.
  log.info({ nodeId: node.nodeId, grpc: node.address, pid: process.pid }, "ready");
}
