import "reflect-metadata";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { NodeFlags } from "@heddle/node-agent/node-flags";
import type { RunningNode } from "@heddle/node-agent/run-node";
import { nodeModule, startNode } from "@heddle/node-agent/start-node";
import type { Log } from "@heddle/observability/logger";
import { ParameterServerState, parameterServerModule } from "./parameter-server.module.ts";
import { RefusalCounts } from "./refusal-counts.ts";

/** Starts a parameter server: attached to every master, with shards of jobs. */
export async function startParameterServer(
  flags: NodeFlags,
  version: string,
  log: Log,
): Promise<RunningNode> {
  await removeStaleSockets();
  const refusals = new RefusalCounts();
  const node = nodeModule({
    role: "parameter-server",
    flags,
    version,
    log,
    takesTickets: true,
    onRefused: () => refusals.add("unauthenticated"),
  });
  return startNode(parameterServerModule(node, refusals), ParameterServerState);
}
