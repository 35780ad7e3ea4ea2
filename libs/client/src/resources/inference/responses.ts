import type { ItemList } from "@heddle/contracts/api/responses/items";
import type { ResponseRequest, TokenCountRequest } from "@heddle/contracts/api/responses/request";
import type { ApiResponse, ResponseEvent } from "@heddle/contracts/api/responses/response";
import { readJsonEvents } from "../../json-events.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Loading a model's weights may come before its answer. */
const ANSWER_TIMEOUT_MS = 300_000;

/** A page of items: the newest first unless the order says otherwise. */
export interface PageOfItems {
  readonly limit?: number;
  readonly order?: "asc" | "desc";
  /** The item before the page. */
  readonly after?: string;
}

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

  /** A stored response. */
  retrieve(id: string, { signal }: CallOptions = {}): Promise<ApiResponse> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** The events of a stored response after the number; a running one is followed to its end. */
  async *follow(
    id: string,
    startingAfter?: number,
    { signal }: CallOptions = {},
  ): AsyncGenerator<ResponseEvent, void> {
    const response = await this.#transport.open({
      method: "GET",
      path: pathOf(id),
      query: { stream: true, starting_after: startingAfter },
      signal,
      headers: { accept: "text/event-stream" },
    });
    yield* readJsonEvents<ResponseEvent>(response, ANSWER_TIMEOUT_MS, signal, isLast);
  }

  /** Cancels a background response; one that has ended stays as it is. */
  cancel(id: string, { signal }: CallOptions = {}): Promise<ApiResponse> {
    const path = `${pathOf(id)}/cancel`;
    return this.#transport.json({ method: "POST", path, signal, isRepeatable: true });
  }

  /** Deletes a stored response. */
  delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal });
  }

  /** The items of a stored response's input. */
  inputItems(id: string, query: PageOfItems = {}, { signal }: CallOptions = {}): Promise<ItemList> {
    const path = `${pathOf(id)}/input_items`;
    return this.#transport.json({ method: "GET", path, query: { ...query }, signal });
  }

  /** How many tokens a prompt has. */
  async inputTokens(request: TokenCountRequest, { signal }: CallOptions = {}): Promise<number> {
    const path = "/responses/input_tokens";
    const { input_tokens } = await this.#transport.json<{ readonly input_tokens: number }>({
      method: "POST",
      path,
      body: request,
      signal,
      isRepeatable: true,
    });
    return input_tokens;
  }
}

function pathOf(id: string): string {
  return `/responses/${pathPart(id)}`;
}

function isLast({ type }: ResponseEvent): boolean {
  return /^response\.(completed|incomplete|failed)$/.test(type);
}
