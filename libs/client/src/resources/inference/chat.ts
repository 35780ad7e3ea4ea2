import type { ChatChunk } from "@heddle/contracts/api/chat";
import { readJsonEvents } from "../../json-events.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** The body of `chat.stream`: OpenAI's, which may have further members. */
export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly {
    readonly role: "system" | "user" | "assistant";
    readonly content: string;
  }[];
  readonly max_tokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly [member: string]: unknown;
}

/** The model's weights may have to load before the first token. */
const TOKEN_TIMEOUT_MS = 300_000;

/** Chat with a model, OpenAI-compatible: `heddle.chat`. */
export class Chat {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /**
   * The chunks of one completion; the last has the token counts. A refused request is not retried.
   */
  async *stream(
    request: ChatRequest,
    { signal }: CallOptions = {},
  ): AsyncGenerator<ChatChunk, void> {
    const body = { ...request, stream: true, stream_options: { include_usage: true } };
    const response = await this.#transport.open({
      method: "POST",
      path: "/chat/completions",
      body,
      signal,
      headers: { accept: "text/event-stream" },
      maxRetries: 0,
      timeout: TOKEN_TIMEOUT_MS,
    });
    yield* readJsonEvents<ChatChunk>(response, TOKEN_TIMEOUT_MS, signal);
  }
}
