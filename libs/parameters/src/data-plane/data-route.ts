import { AppError, toAppError } from "@heddle/base/errors";
import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import { DataConnection, type DataSink } from "./data-connection.ts";
import type { DataHead } from "./data-frames.ts";

/** The paths of data. */
export type DataPath = "unix" | "tcp" | "grpc";

/** The data of one message on the portable path. */
const CHUNK_BYTES = 1024 * 1024;

/** Data as messages of the portable path; at least one. */
export function* parameterChunks(
  version: number,
  bytes: number,
  pieces: Iterable<Uint8Array>,
): Generator<ParameterChunk> {
  let offset = 0;
  let gathered: Uint8Array[] = [];
  let size = 0;
  const chunk = (data: Uint8Array): ParameterChunk => {
    const message = { version, offset, data, totalBytes: bytes };
    offset += data.length;
    return message;
  };
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += CHUNK_BYTES) {
      const slice = piece.subarray(at, at + CHUNK_BYTES);
      gathered.push(slice);
      size += slice.length;
      if (size < CHUNK_BYTES) continue;
      yield chunk(gathered.length === 1 ? slice : Buffer.concat(gathered));
      gathered = [];
      size = 0;
    }
  }
  if (size > 0 || offset === 0) yield chunk(Buffer.concat(gathered));
}

/** A sink that also accepts copied bytes, as gRPC delivers them. */
export interface CopyingSink extends DataSink {
  copy(bytes: Uint8Array): void;
  /** Throws where bytes are missing. */
  end(): void;
}

/** One request for data: targets as `unix:PATH`, and the gRPC call as a stream. */
export interface Fetching {
  /** The best first; of gRPC `grpc:HOST:PORT`. */
  readonly targets: readonly string[];
  readonly token: Uint8Array;
  readonly request: object;
  /** Called for each target that is tried. */
  readonly sink: () => CopyingSink;
  readonly overGrpc: (
    address: string,
    signal: AbortSignal,
  ) => AsyncIterable<ParameterChunk__Output>;
  readonly signal: AbortSignal;
}

/**
 * Data connections to one peer. A working one is used again; an unreachable target falls back to
 * the next. An answer that is an error is final: another path would give the same.
 */
export class DataRoute {
  #connection: DataConnection | undefined;
  #target = "";

  /** The path of the latest data; empty before the first. */
  get path(): DataPath | "" {
    return this.#target === ""
      ? ""
      : (this.#target.slice(0, this.#target.indexOf(":")) as DataPath);
  }

  async fetch(fetching: Fetching): Promise<DataHead> {
    let failure = new AppError("unavailable", "a worker reported no address for its part");
    for (const target of this.#ordered(fetching.targets)) {
      fetching.signal.throwIfAborted();
      try {
        const head = await this.#fetchFrom(target, fetching);
        this.#target = target;
        return head;
      } catch (error) {
        failure = toAppError(error);
        if (failure.code !== "unavailable") throw failure;
      }
    }
    throw failure;
  }

  close(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }

  #ordered(targets: readonly string[]): readonly string[] {
    if (!targets.includes(this.#target)) return targets;
    return [this.#target, ...targets.filter((target) => target !== this.#target)];
  }

  async #fetchFrom(target: string, fetching: Fetching): Promise<DataHead> {
    const sink = fetching.sink();
    if (target.startsWith("grpc:")) {
      return collect(fetching.overGrpc(target.slice("grpc:".length), fetching.signal), sink);
    }
    if (this.#target !== target || !this.#connection?.open) {
      this.#connection?.close();
      this.#connection = await DataConnection.open(target, fetching.token, fetching.signal);
    }
    return this.#connection.request(fetching.request, sink, fetching.signal);
  }
}

async function collect(
  chunks: AsyncIterable<ParameterChunk__Output>,
  sink: CopyingSink,
): Promise<DataHead> {
  let head: DataHead | undefined;
  for await (const { version, totalBytes, data } of chunks) {
    if (!head) {
      head = { version, bytes: totalBytes };
      sink.begin(head);
    }
    sink.copy(data);
  }
  if (!head) throw new AppError("unavailable", "a stream of parameters ended before it began");
  sink.end();
  return head;
}
