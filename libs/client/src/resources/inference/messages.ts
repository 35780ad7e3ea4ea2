import type {
  MessageAnswer,
  MessageEvent,
  MessageTokenCount,
} from "@heddle/contracts/api/inference/messages";
import type {
  MessagesPrompt,
  MessagesRequest,
} from "@heddle/contracts/api/inference/messages-request";
import { readJsonEvents } from "../../json-events.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Loading a model's weights may come before the first token. */
const TOKEN_TIMEOUT_MS = 300_000;

type Body = Omit<MessagesRequest, "stream">;

/** Messages as Anthropic's API has them: `heddle.messages`. */
export class Messages {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The whole message. A refused request is not repeated. */
  create(body: Body, { signal }: CallOptions = {}): Promise<MessageAnswer> {
    return this.#transport.json({ ...toMessages(body), signal });
  }

  /** The tokens of a message's prompt. */
  countTokens(body: MessagesPrompt, { signal }: CallOptions = {}): Promise<MessageTokenCount> {
    const path = "/messages/count_tokens";
    return this.#transport.json({ method: "POST", path, body, isRepeatable: true, signal });
  }

  /** The events of one message; `ping` is among them where the model is silent for long. */
  async *stream(
    body: Body,
    { signal }: CallOptions = {},
  ): AsyncGenerator<MessageEvent | { readonly type: "ping" }, void> {
    const response = await this.#transport.open({
      ...toMessages({ ...body, stream: true }),
      signal,
      headers: { accept: "text/event-stream" },
    });
    const isLast = ({ type }: MessageEvent) => type === "message_stop";
    yield* readJsonEvents<MessageEvent>(response, TOKEN_TIMEOUT_MS, signal, isLast);
  }
}

function toMessages(body: MessagesRequest) {
  const path = "/messages";
  return { method: "POST", path, body, maxRetries: 0, timeout: TOKEN_TIMEOUT_MS } as const;
}
