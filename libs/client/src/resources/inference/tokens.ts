import type {
  ApplyTemplateRequest,
  DetokenizeRequest,
  ShownPrompt,
  Tokenized,
  TokenizeRequest,
} from "@heddle/contracts/api/inference/tokens";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** How a model reads texts and chats: `heddle.tokens`. */
export class Tokens {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  tokenize(body: TokenizeRequest, { signal }: CallOptions = {}): Promise<Tokenized> {
    return this.#transport.json({ ...toRead("/tokenize", body), signal });
  }

  detokenize(body: DetokenizeRequest, { signal }: CallOptions = {}): Promise<ShownPrompt> {
    return this.#transport.json({ ...toRead("/detokenize", body), signal });
  }

  applyTemplate(body: ApplyTemplateRequest, { signal }: CallOptions = {}): Promise<ShownPrompt> {
    return this.#transport.json({ ...toRead("/apply-template", body), signal });
  }
}

function toRead(path: string, body: unknown) {
  return { method: "POST", path, body, isRepeatable: true } as const;
}
