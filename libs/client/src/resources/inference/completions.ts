import type { CompletionAnswer, CompletionRequest } from "@heddle/contracts/api/completions";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Loading a model's weights may come before its answer. */
const ANSWER_TIMEOUT_MS = 300_000;

/** Texts that a model continues, as any OpenAI SDK asks for them: `heddle.completions`. */
export class Completions {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The whole answer. A refused request is not repeated. */
  create(
    request: Omit<CompletionRequest, "stream" | "stream_options">,
    { signal }: CallOptions = {},
  ): Promise<CompletionAnswer> {
    const timeout = ANSWER_TIMEOUT_MS;
    const path = "/completions";
    return this.#transport.json({
      method: "POST",
      path,
      body: request,
      signal,
      timeout,
      maxRetries: 0,
    });
  }
}
