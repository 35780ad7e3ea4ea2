import { AppError, toAppError } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { HEARTBEAT_MS } from "../../config/config.ts";
import { envelopeBody } from "../../http/error-reply.ts";
import { EventStream } from "../../http/event-stream.ts";
import { InFlight } from "../../inference/in-flight.ts";
import {
  NODE_DIRECTORY,
  type NodeDirectory,
  type PullProgress,
} from "../../nodes/node-directory.ts";

/** Makes workers pull weights and streams the progress until it is done. */
export class ModelPulls {
  readonly #directory: NodeDirectory;
  readonly #inFlight: InFlight;

  constructor(
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(InFlight) inFlight: InFlight,
  ) {
    this.#directory = directory;
    this.#inFlight = inFlight;
  }

  /** Throws only before anything was sent; a client's disconnect ends the pull. */
  async stream(deployment: DeploymentSpec, requestId: string, reply: FastifyReply): Promise<void> {
    const abort = this.#inFlight.enter();
    const { raw } = reply;
    const onClose = (): void =>
      abort.abort(new AppError("cancelled", "The client closed the connection."));
    raw.on("close", onClose);
    try {
      const progress = this.#directory.pull(deployment, abort.signal)[Symbol.asyncIterator]();
      const first = await progress.next();
      reply.hijack();
      await sendProgress(
        new EventStream(raw, {
          heartbeatMs: HEARTBEAT_MS,
          onOpen: () => ({ "x-request-id": requestId }),
        }),
        first,
        progress,
        requestId,
      );
    } finally {
      raw.off("close", onClose);
      this.#inFlight.leave(abort);
    }
  }
}

async function sendProgress(
  stream: EventStream,
  first: IteratorResult<PullProgress>,
  rest: AsyncIterator<PullProgress>,
  requestId: string,
): Promise<void> {
  try {
    for (let item = first; !item.done; item = await rest.next()) {
      if (!stream.write(progressEvent(item.value))) await stream.drained();
    }
    stream.end("event: done\ndata: {}\n\n");
  } catch (thrown) {
    stream.end(`event: error\ndata: ${envelopeBody(toAppError(thrown), requestId)}\n\n`);
  }
}

function progressEvent({ pulledBytes, totalBytes, source, done }: PullProgress): string {
  const data = { pulled_bytes: pulledBytes, total_bytes: totalBytes, source, done };
  return `event: progress\ndata: ${JSON.stringify(data)}\n\n`;
}
