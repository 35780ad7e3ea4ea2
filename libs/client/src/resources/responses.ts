import type { ResponseRequest } from "@heddle/contracts/api/responses/request";
import type { ApiResponse, ResponseEvent } from "@heddle/contracts/api/responses/response";
import { readJsonEvents } from "../json-events.ts";
import type { CallOptions, HttpTransport } from "../transport.ts";

/** Loading a model's weights may come before its answer. */
const ANSWER_TIMEOUT_MS = 300_000;

/** Responses, as any OpenAI SDK asks for them: `heddle.responses`. */
export class Responses {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The whole response. A refused request is not repeated. */
  create(
    request: Omit<ResponseRequest, "stream" | "stream_options">,
    { signal }: CallOptions = {},
  ): Promise<ApiResponse> {
    return this.#transport.json({
      method: "POST",
      path: "/responses",
      body: request,
      signal,
      timeout: ANSWER_TIMEOUT_MS,
      maxRetries: 0,
    });
  }

  /** The events of a response. A refused request is not repeated. */
  async *stream(
    request: Omit<ResponseRequest, "stream">,
    { signal }: CallOptions = {},
  ): AsyncGenerator<ResponseEvent, void> {
    const response = await this.#transport.open({
      method: "POST",
      path: "/responses",
      body: { ...request, stream: true },
      signal,
      headers: { accept: "text/event-stream" },
      maxRetries: 0,
      timeout: ANSWER_TIMEOUT_MS,
    });
    yield* readJsonEvents<ResponseEvent>(response, ANSWER_TIMEOUT_MS, signal, isLast);
  }
}

function isLast({ type }: ResponseEvent): boolean {
  return /^response\.(completed|incomplete|failed)$/.test(type);
}
