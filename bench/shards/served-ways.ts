import type { CuttableModel } from "@heddle/engines/shards/cut-rules";
import { BenchEngine, MAX_SEQUENCES } from "./engines.ts";
import { RpcModelPeer } from "./peer/ggml-rpc.ts";
import type { RatedServer } from "./rated-rounds.ts";

export const WHOLE = "whole";
export const ONE_CALL = callsName(2, 1);
export const TWO_CALLS = callsName(2, 2);
export const RPC_PEER = "ggml RPC, 2 servers";

interface Served {
  readonly model: CuttableModel;
  readonly modelFile: string;
  readonly folder: string;
  readonly stageCounts: readonly number[];
  /** The libraries of ggml's RPC, if there are any. */
  readonly rpc: string | undefined;
}

/** The model in all ways in which it is served, those next to each other that are compared. */
export async function servedWays(served: Served): Promise<readonly RatedServer[]> {
  const { model, modelFile, folder, stageCounts, rpc } = served;
  const servers: RatedServer[] = [];
  for (const count of stageCounts) {
    for (const callsAtOnce of count === 1 ? [1] : [1, count]) {
      const name = count === 1 ? WHOLE : callsName(count, callsAtOnce);
      const how = { name, count, folder, callsAtOnce };
      servers.push(await BenchEngine.open(model, modelFile, how));
      if (name !== TWO_CALLS || rpc === undefined) continue;
      const of = { name: RPC_PEER, modelFile, servers: 2, maxSequences: MAX_SEQUENCES };
      servers.push(await RpcModelPeer.open(rpc, of));
    }
  }
  return servers;
}

function callsName(count: number, callsAtOnce: number): string {
  return `${count} stages, ${callsAtOnce} call${callsAtOnce === 1 ? "" : "s"} at once`;
}
