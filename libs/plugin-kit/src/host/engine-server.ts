import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { AppError, ERROR_TABLE } from "@heddle/base/errors";
import { validate } from "@heddle/contracts/validation";
import { z } from "zod";
import type { EngineCall, PluginEngine } from "../points/engines.ts";

/** The longest body of a call. */
const MAX_BODY_BYTES = 64 * 2 ** 20;
const BYTES_PER_TOKEN = 4;

const chatBody = z.looseObject({
  model: z.string(),
  messages: z.array(z.looseObject({ role: z.string(), content: z.string().nullable() })),
  n: z.literal(1).optional(),
  logprobs: z.literal(false).optional(),
  max_tokens: z.int().min(0).optional(),
  max_completion_tokens: z.int().min(0).optional(),
  stop: z.union([z.string().min(1), z.array(z.string().min(1))]).optional(),
});

type ChatBody = z.output<typeof chatBody>;

interface EngineServerOptions {
  readonly apiKey: string;
  readonly modelFile: string | undefined;
}

/** Serves an engine of a plugin by OpenAI's API, as far as workers call it: streamed chats. */
export class EngineServer {
  readonly #engine: PluginEngine;
  readonly #options: EngineServerOptions;

  constructor(engine: PluginEngine, options: EngineServerOptions) {
    this.#engine = engine;
    this.#options = options;
  }

  async serve(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const gone = new AbortController();
    reply.once("close", () => gone.abort());
    try {
      const body = await this.#bodyOf(request);
      await this.#answer(body, reply, gone);
    } catch (error) {
      if (!gone.signal.aborted) fail(reply, error);
    }
  }

  async #bodyOf(request: IncomingMessage): Promise<ChatBody> {
    if (request.headers.authorization !== `Bearer ${this.#options.apiKey}`) {
      throw new AppError("invalid_api_key", "only its worker calls this engine");
    }
    if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
      throw new AppError("not_found", "this engine answers chats alone");
    }
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of request as AsyncIterable<Buffer>) {
      bytes += piece.byteLength;
      if (bytes > MAX_BODY_BYTES) throw new AppError("request_too_large", "the call is too long");
      pieces.push(piece);
    }
    return validate(chatBody, JSON.parse(Buffer.concat(pieces).toString()));
  }

  async #answer(body: ChatBody, reply: ServerResponse, gone: AbortController): Promise<void> {
    const { model, messages, max_completion_tokens, max_tokens, stop = [] } = body;
    const limit = max_completion_tokens ?? max_tokens ?? Number.POSITIVE_INFINITY;
    const { signal } = gone;
    const { modelFile } = this.#options;
    const call: EngineCall = { model, modelFile, messages, parameters: body, signal };
    const send = async (chunk: object) => {
      if (!reply.headersSent) reply.writeHead(200, { "content-type": "text/event-stream" });
      if (!reply.write(`data: ${JSON.stringify(chunk)}\n\n`))
        await once(reply, "drain", { signal });
    };
    const text = new StoppedText([stop].flat());
    const said = (content: string) => send({ choices: [{ index: 0, delta: { content } }] });
    let tokens = 0;
    for await (const piece of limit > 0 ? this.#engine.answer(call) : []) {
      if (typeof piece !== "string") throw new Error("its `answer` gave a piece that is no text");
      tokens++;
      await said(text.add(piece));
      if (text.isStopped || tokens >= limit) break;
    }
    const rest = text.end();
    if (rest !== "") await said(rest);
    const isCut = tokens >= limit && !text.isStopped;
    await send({ choices: [{ index: 0, delta: {}, finish_reason: isCut ? "length" : "stop" }] });
    await send({ choices: [], usage: this.#usageOf(call, tokens) });
    reply.end("data: [DONE]\n\n");
  }

  #usageOf({ messages }: EngineCall, completion: number) {
    const prompt = messages.map(({ content }) => this.#tokensOf(content ?? ""));
    return {
      prompt_tokens: Math.max(
        1,
        prompt.reduce((sum, count) => sum + count, 0),
      ),
      completion_tokens: completion,
    };
  }

  #tokensOf(text: string): number {
    const own = this.#engine.tokensOf?.(text);
    return own ?? Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
  }
}

/** A text up to the first of some strings; what may begin one waits for what follows. */
class StoppedText {
  readonly #stops: readonly string[];
  readonly #longest: number;
  #held = "";
  isStopped = false;

  constructor(stops: readonly string[]) {
    this.#stops = stops;
    this.#longest = Math.max(1, ...stops.map(({ length }) => length));
  }

  /** What can be sent now. */
  add(piece: string): string {
    this.#held += piece;
    const found = this.#stops.map((stop) => this.#held.indexOf(stop)).filter((at) => at >= 0);
    this.isStopped = found.length > 0;
    const end = this.isStopped ? Math.min(...found) : this.#held.length - (this.#longest - 1);
    const text = this.#held.slice(0, Math.max(0, end));
    this.#held = this.isStopped ? "" : this.#held.slice(text.length);
    return text;
  }

  end(): string {
    return this.#held;
  }
}

/** Before the answer as its status; within it as its last event. */
function fail(reply: ServerResponse, error: unknown): void {
  const known = error instanceof AppError ? error : undefined;
  const message = known?.message ?? `the engine had an error: ${String(error)}`;
  if (!known) process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  const body = { error: { message, code: known?.code ?? "server_error", param: known?.param } };
  if (reply.headersSent) {
    reply.end(`data: ${JSON.stringify(body)}\n\n`);
    return;
  }
  const status = known ? ERROR_TABLE[known.code].http : 500;
  reply.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}
