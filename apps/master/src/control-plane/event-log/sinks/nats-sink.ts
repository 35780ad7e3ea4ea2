import { randomBytes } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { LogSink, SinkBatch } from "./log-sink.ts";
import { NatsConnection, type NatsServer } from "./nats-connection.ts";

/** How long a stream may take for a batch. */
const ACK_MS = 15_000;
const GATHER_MS = 1_000;

export interface NatsSinkOptions {
  readonly server: NatsServer;
  /** A JetStream stream must take it. */
  readonly subject: string;
  /** The name of the event log, for the ids of messages. */
  readonly origin: string;
}

interface Acknowledgement {
  readonly error?: { readonly description?: string };
  readonly stream?: string;
}

/**
 * Events as messages of a JetStream stream, which stores each before it counts as sent. The id of a
 * message is that of its event, so the stream drops repeated ones.
 */
export class NatsSink implements LogSink {
  readonly name: string;
  readonly gatherMs: number;
  readonly #options: NatsSinkOptions;
  readonly #inbox = `_INBOX.heddle.${randomBytes(12).toString("hex")}`;
  #connection: NatsConnection | undefined;
  /** Acknowledgements of the present batch, by the last part of their subject. */
  #waiting = new Map<string, () => void>();
  #refusal: ((error: AppError) => void) | undefined;

  constructor(options: NatsSinkOptions, gatherMs = GATHER_MS) {
    const { host, port } = options.server;
    this.name = `nats://${host}:${port}/${options.subject}`;
    this.#options = options;
    this.gatherMs = gatherMs;
  }

  async write({ first, texts }: SinkBatch): Promise<void> {
    const { subject, origin, server } = this.#options;
    if (!this.#connection?.isOpen) {
      this.#connection = await NatsConnection.open(server, this.#inbox, this.#onMessage);
    }
    const connection = this.#connection;
    const refused = Promise.withResolvers<never>();
    this.#refusal = refused.reject;
    this.#waiting.clear();
    const acknowledged = texts.map((text, at) => {
      const id = String(first + at);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.set(id, resolve);
      connection.publish(subject, `${this.#inbox}.${id}`, `Nats-Msg-Id: ${origin}/${id}\r\n`, text);
      return promise;
    });
    const timer = setTimeout(() => {
      const message = `the stream of ${subject} did not acknowledge ${this.#waiting.size} events`;
      refused.reject(new AppError("unavailable", message));
    }, ACK_MS);
    try {
      await Promise.race([Promise.all(acknowledged), connection.ended, refused.promise]);
    } catch (error) {
      // Late acknowledgements of this batch must not count for the next one.
      await this.close();
      throw error;
    } finally {
      clearTimeout(timer);
      this.#refusal = undefined;
    }
  }

  async close(): Promise<void> {
    this.#connection?.close();
    this.#connection = undefined;
  }

  readonly #onMessage = (to: string, headers: string, payload: string): void => {
    const id = to.slice(this.#inbox.length + 1);
    const why = headers.startsWith("NATS/1.0 503")
      ? `no JetStream stream takes ${this.#options.subject}; add one`
      : faultOf(payload);
    if (why !== undefined) this.#refusal?.(new AppError("unavailable", why));
    else this.#waiting.get(id)?.();
    this.#waiting.delete(id);
  };
}

function faultOf(payload: string): string | undefined {
  try {
    const { error, stream } = JSON.parse(payload) as Acknowledgement;
    if (error)
      return `the stream refused an event: ${error.description ?? "no reason"}`.slice(0, 300);
    return stream === undefined ? "what answers is no stream" : undefined;
  } catch {
    return "what answers is no stream";
  }
}
