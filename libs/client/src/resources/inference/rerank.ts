import type {
  ModerationAnswer,
  ModerationRequest,
} from "@heddle/contracts/api/inference/moderations";
import type { RerankAnswer, RerankRequest } from "@heddle/contracts/api/inference/rerank";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Loading a model's weights may come before its answer. */
const ANSWER_TIMEOUT_MS = 300_000;

/** Documents in the order of their relevance to a query: `heddle.rerank`. */
export class Rerank {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  create(body: RerankRequest, { signal }: CallOptions = {}): Promise<RerankAnswer> {
    const timeout = ANSWER_TIMEOUT_MS;
    const path = "/rerank";
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

/** Texts checked for harm, as any OpenAI SDK asks for it: `heddle.moderations`. */
export class Moderations {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  create(body: ModerationRequest, { signal }: CallOptions = {}): Promise<ModerationAnswer> {
    const path = "/moderations";
    return this.#transport.json({ method: "POST", path, body, signal, isRepeatable: true });
  }
}
