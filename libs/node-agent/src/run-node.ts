import { ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { endProcess } from "@heddle/base/process/end-process";
import type { Log } from "@heddle/observability/logger";
import type { NodeFigures } from "./node-metrics.ts";

/** Grace period of open requests after SIGTERM. */
const DRAIN_MS = 10_000;
/** After this further time the process exits, whatever still runs. */
const EXIT_MS = 15_000;

export interface RunningNode extends NodeFigures {
  readonly nodeId: string;
  readonly address: string;
  /** The URL of its metrics. */
  readonly metrics?: string;
  close(drainMs: number): Promise<void>;
}

/**
 * A node's process: starts it, prints the line `ready`, and drains and exits 0 on SIGTERM or SIGINT
 * (at once on a second one). If the start fails it exits with the error's code.
 */
export async function runNode(start: () => Promise<RunningNode>, log: Log): Promise<void> {
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
    log.info({ drainMs: DRAIN_MS }, "stopping");
    setTimeout(() => void endProcess(1), DRAIN_MS + EXIT_MS).unref();
    try {
      await node.close(DRAIN_MS);
    } catch (error) {
      log.error({ error: String(error) }, "the node did not stop in order");
      return endProcess(1);
    }
    return endProcess(0);
  };
  process.on("SIGTERM", () => void stop());
  process.on("SIGINT", () => void stop());
  // Last, because its reader may send a signal at once.
  const { nodeId, address: grpc, metrics } = node;
  log.info({ nodeId, grpc, metrics, pid: process.pid }, "ready");
}
