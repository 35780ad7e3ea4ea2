import { AppError } from "@heddle/base/errors";
import type { WeightsRange } from "@heddle/contracts/generated/heddle/v1/WeightsRange";
import type { WeightsPeer } from "@heddle/engines/shards/weights/stage-weights";
import { AbsentRange } from "@heddle/engines/weights/ranges/range-source";
import { MAX_INDEX_BYTES } from "@heddle/engines/weights/ranges/tensor-index";
import {
  PermanentFault,
  SourceFault,
  UnreachableFault,
} from "@heddle/engines/weights/source-fault";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { readWeightsMethod } from "@heddle/rpc/proto";

/** An index is a small file of a worker that is near. */
const INDEX_MS = 10_000;

/** Another worker as a source of weights: all or parts of a file. */
export function weightsPeer(address: string, credentials: NodeCredentials): WeightsPeer {
  async function* read(range: WeightsRange, signal: AbortSignal): AsyncGenerator<Buffer, void> {
    const peer = new Peer(address, credentials, "worker", bulkChannelOptions);
    try {
      for await (const { data } of peer.serverStream(readWeightsMethod, range, signal)) yield data;
    } catch (error) {
      signal.throwIfAborted();
      throw faultOf(error);
    } finally {
      peer.close();
    }
  }
  return {
    name: `the worker at ${address}`,
    async index(digest, signal) {
      const pieces: Buffer[] = [];
      let size = 0;
      const late = AbortSignal.any([signal, AbortSignal.timeout(INDEX_MS)]);
      for await (const piece of read({ index: digest }, late)) {
        size += piece.length;
        if (size > MAX_INDEX_BYTES) throw new PermanentFault("its index is too large");
        pieces.push(piece);
      }
      return Buffer.concat(pieces).toString("utf8");
    },
    read: (index, range, signal) => read({ index, ...range }, signal),
  };
}

function faultOf(error: unknown): SourceFault {
  if (!(error instanceof AppError)) return new SourceFault(String(error), { cause: error });
  const { code, message } = error;
  const details = { cause: error };
  if (code === "not_found") return new AbsentRange(message, details);
  if (code === "unavailable") return new UnreachableFault(message, details);
  if (code === "overloaded") return new SourceFault(message, details);
  return new PermanentFault(message, details);
}
