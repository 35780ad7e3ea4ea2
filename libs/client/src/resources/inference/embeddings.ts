import type { EmbeddingAnswer, EmbeddingRequest } from "@heddle/contracts/api/embeddings";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Loading a model's weights may come before its answer. */
const ANSWER_TIMEOUT_MS = 300_000;

/** Vectors of texts, as any OpenAI SDK asks for them: `heddle.embeddings`. */
export class Embeddings {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The vectors in the order of the inputs. */
  create(body: EmbeddingRequest, { signal }: CallOptions = {}): Promise<EmbeddingAnswer> {
    const timeout = ANSWER_TIMEOUT_MS;
    const path = "/embeddings";
    return this.#transport.json({
      method: "POST",
      path,
      body,
      signal,
      timeout,
      isRepeatable: true,
    });
  }
}
