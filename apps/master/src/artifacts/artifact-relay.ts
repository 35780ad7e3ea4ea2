import type { Server, ServerWritableStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import { taskArtifactsService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
import { writeAll } from "@heddle/rpc/write-all";
import type { ArtifactReader } from "./artifact-reader.ts";

/** Relays at once on one master; more are refused and tried again by who asks. */
const maxRelays = 64;

type ReadStream = ServerWritableStream<ArtifactRange__Output, ArtifactChunk>;

/** TaskArtifacts of proto/tasks.proto on a master: passes on what the worker that has it sends. */
export class ArtifactRelay {
  readonly #artifacts: ArtifactReader;
  #relays = 0;

  constructor(server: Server, artifacts: ArtifactReader) {
    this.#artifacts = artifacts;
    server.addService(taskArtifactsService, {
      read: (stream: ReadStream) => {
        this.#relay(stream).catch((error: unknown) => stream.emit("error", toStatus(error)));
      },
    });
  }

  async #relay(stream: ReadStream): Promise<void> {
    if (this.#relays >= maxRelays) {
      throw new AppError("overloaded", `this master passes on ${maxRelays} artifacts already`);
    }
    this.#relays += 1;
    const gone = new AbortController();
    stream.once("cancelled", () => gone.abort());
    try {
      await writeAll(stream, this.#chunks(stream.request, gone.signal));
    } finally {
      this.#relays -= 1;
    }
  }

  async *#chunks(
    { task, name, offset, maxBytes }: ArtifactRange__Output,
    signal: AbortSignal,
  ): AsyncGenerator<ArtifactChunk, void> {
    const { jobId = "", attempt, rank } = task ?? {};
    const known = this.#artifacts.find(jobId, name, rank);
    if (known.task.attempt !== attempt) {
      throw new AppError("not_found", `attempt ${attempt} of job ${jobId} is not its latest`);
    }
    for await (const data of this.#artifacts.read(known, { offset, maxBytes }, signal)) {
      yield { data };
    }
  }
}
