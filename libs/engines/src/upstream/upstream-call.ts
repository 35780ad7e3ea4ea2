import type { Readable } from "node:stream";
import { ServerSentEventParser } from "@heddle/client/server-sent-events";
import type { EmbedRequest, EngineEvent, EngineEventSink } from "@heddle/contracts/engine";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { AnswerReader } from "./answer-reader.ts";
import { DIALECTS } from "./dialects.ts";
import { embeddingEvents } from "./embedding-answer.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";
import { broken, garbage, UpstreamFault } from "./upstream-fault.ts";
import type { AnsweredRequest, UpstreamRequest } from "./upstream-request.ts";

/** The most bytes of one answer: a text of a million tokens, or 32 vectors. */
const MAX_ANSWER_BYTES = 64 * 2 ** 20;

export type DoneEvent = EngineEvent & { readonly type: "done" };

/** One try of one request at an upstream. */
export class UpstreamCall {
  readonly #id: number;
  readonly #request: AnsweredRequest;
  readonly #spec: UpstreamSpec;
  readonly #silence = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #bytes = 0;
  #isStarted = false;

  constructor(id: number, request: AnsweredRequest, spec: UpstreamSpec) {
    this.#id = id;
    this.#request = request;
    this.#spec = spec;
  }

  /** Whether any part of the answer was received: a repeated call could give another answer. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  /** Gives its last event back. Throws an UpstreamFault, or the signal's reason. */
  async run(
    connection: UpstreamConnection,
    work: UpstreamRequest,
    signal: AbortSignal,
    emit: EngineEventSink,
  ): Promise<DoneEvent> {
    this.#expect(this.#spec.firstByteTimeoutMs);
    const either = AbortSignal.any([signal, this.#silence.signal]);
    try {
      const body = await connection.post(work, either);
      if (this.#request.kind === "embed") return await this.#readVectors(body, this.#request, emit);
      const dialect = DIALECTS[this.#spec.dialect];
      const reader = new AnswerReader(this.#id, this.#request, dialect, connection.apiKey);
      return await this.#readText(body, reader, emit);
    } catch (error) {
      signal.throwIfAborted();
      this.#silence.signal.throwIfAborted();
      throw error instanceof UpstreamFault ? error : broken("broke its answer off", error);
    } finally {
      clearTimeout(this.#timer);
    }
  }

  async #readText(body: Readable, reader: AnswerReader, emit: EngineEventSink): Promise<DoneEvent> {
    const parser = new ServerSentEventParser();
    const decoder = new TextDecoder();
    for await (const chunk of body as AsyncIterable<Buffer>) {
      this.#count(chunk);
      const events: EngineEvent[] = [];
      try {
        for (const { data } of pieces(parser, decoder.decode(chunk, { stream: true }))) {
          if (data !== "") events.push(...reader.push(data));
        }
      } finally {
        // Comments keep a connection open and are no answer.
        this.#isStarted ||= reader.isStarted;
        if (events.length > 0) emit(events);
      }
      if (this.#isStarted) this.#expect(this.#spec.idleTimeoutMs);
    }
    return reader.end();
  }

  async #readVectors(
    body: Readable,
    request: EmbedRequest,
    emit: EngineEventSink,
  ): Promise<DoneEvent> {
    const chunks: Buffer[] = [];
    for await (const chunk of body as AsyncIterable<Buffer>) {
      this.#count(chunk);
      this.#isStarted = true;
      this.#expect(this.#spec.idleTimeoutMs);
      chunks.push(chunk);
    }
    const text = Buffer.concat(chunks).toString("utf8");
    const { events, usage } = embeddingEvents(this.#id, text, request.inputs.length);
    emit(events);
    return { type: "done", id: this.#id, usage };
  }

  #count(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_ANSWER_BYTES) throw garbage("an answer without end");
  }

  #expect(withinMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#silence.abort(broken(`was silent for ${withinMs} ms`));
    }, withinMs);
  }
}

function pieces(parser: ServerSentEventParser, text: string) {
  try {
    return parser.push(text);
  } catch {
    throw garbage("an event without end");
  }
}
