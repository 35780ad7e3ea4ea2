import type {
  AsyncCompletion,
  CompletionAnswer,
  CompletionRequest,
} from "@heddle/contracts/api/completions";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

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

  /** Starts a completion that runs without its client; a retry starts no second one. */
  start(
    request: Omit<CompletionRequest, "stream" | "stream_options">,
    { idempotencyKey = crypto.randomUUID(), signal }: ChangeOptions = {},
  ): Promise<AsyncCompletion> {
    const headers = { prefer: "respond-async", "idempotency-key": idempotencyKey };
    const path = "/completions";
    return this.#transport.json({ method: "POST", path, body: request, headers, signal });
  }

  /** A started completion; its status is `in_progress` while it runs. */
  retrieve(id: string, { signal }: CallOptions = {}): Promise<AsyncCompletion> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** Cancels a started completion that runs, and deletes one that has ended. */
  cancel(id: string, { signal }: CallOptions = {}): Promise<AsyncCompletion> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal });
  }
}

function pathOf(id: string): string {
  return `/completions/${pathPart(id)}`;
}
