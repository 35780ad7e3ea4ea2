import { toAppError } from "@heddle/base/errors";
import type { ResponseEvent } from "@heddle/contracts/api/responses/response";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import type { CallerRequest } from "../../http/access.ts";
import { EventStream } from "../../http/event-stream.ts";
import { InFlight } from "../in-flight.ts";
import { eventText } from "./response-builder.ts";
import { followed, type ResponseSource } from "./response-source.ts";

export interface SentEvents {
  readonly isPadded: boolean;
  /** Events up to this number are left out. */
  readonly after?: number | undefined;
  readonly headers?: Record<string, string>;
}

/** Streams of responses that continue whether or not a client reads them. */
export class ResponseStreams {
  readonly #inFlight: InFlight;
  readonly #times: MasterConfig["fixedTimes"];

  constructor(
    @Inject(InFlight) inFlight: InFlight,
    @Inject(MASTER_CONFIG) { fixedTimes }: Pick<MasterConfig, "fixedTimes">,
  ) {
    this.#inFlight = inFlight;
    this.#times = fixedTimes;
  }

  /** Sends the events of the response until its end, or until the client hangs up. */
  async send(
    http: CallerRequest,
    reply: FastifyReply,
    source: ResponseSource,
    options: SentEvents,
  ): Promise<void> {
    const abort = this.#inFlight.enter();
    const onClose = () => abort.abort();
    reply.hijack();
    reply.raw.on("close", onClose);
    if (reply.raw.destroyed) onClose();
    const stream = new EventStream(reply.raw, {
      heartbeatMs: this.#times.streamHeartbeatMs,
      stallMs: this.#times.streamStallMs,
      onOpen: () => ({ ...options.headers, "x-request-id": http.id }),
    });
    try {
      await pump(source, stream, options, abort.signal);
    } finally {
      reply.raw.off("close", onClose);
      this.#inFlight.leave(abort);
    }
  }
}

async function pump(
  source: ResponseSource,
  stream: EventStream,
  { after = -1, isPadded }: SentEvents,
  signal: AbortSignal,
): Promise<void> {
  let last = -1;
  const textOf = (event: ResponseEvent) => {
    last = event.sequence_number;
    if (last > after) return eventText(event, isPadded);
    // A response that was lost has fewer events stored than its readers have seen.
    if (event.type !== "response.failed") return "";
    return eventText({ ...event, sequence_number: after + 1 }, isPadded);
  };
  try {
    for await (const events of followed(source, signal)) {
      const text = events.map(textOf).join("");
      if (text !== "" && !stream.write(text)) await stream.drained();
    }
    stream.end();
  } catch (thrown) {
    const { code, message, param = null } = toAppError(signal.aborted ? signal.reason : thrown);
    stream.end(
      eventText(
        { type: "error", sequence_number: last + 1, code, message, param: param ?? null },
        false,
      ),
    );
  }
}
