/** A registration for POST /models. */
interface ServedModel {
  readonly id: string;
  /** For example `file:///models/a.gguf`. */
  readonly source: string;
  readonly options?: Readonly<Record<string, number | object>>;
  /** One where absent. */
  readonly replicas?: "every-worker" | undefined;
}

/** The calls of our API that the benchmarks need. */
export class HeddleApi {
  /** For example `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly key: string;

  constructor(url: string, key: string) {
    this.url = url;
    this.key = key;
  }

  /** A key with limits so wide that they are checked but never reached, like accounting. */
  async createLimitedKey(): Promise<string> {
    const wide = 1_000_000_000;
    const limits = { requests_per_minute: wide, tokens_per_minute: wide, concurrency: wide };
    const created = await this.#call("POST", "/keys", { name: "bench", limits });
    return (created as { key: string }).key;
  }

  /** Registers a model over weights and waits until it answers. */
  async serve(model: ServedModel, timeoutMs: number): Promise<void> {
    await this.#call("POST", "/models", model);
    await this.waitForAnswer(model.id, timeoutMs);
  }

  async waitForAnswer(model: string, timeoutMs: number): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    const messages = [{ role: "user", content: "Hello" }];
    for (;;) {
      const answer = await this.#call("POST", "/chat/completions", {
        model,
        messages,
        max_tokens: 1,
      }).catch((error: Error) => error);
      if (!(answer instanceof Error)) return;
      if (Date.now() > deadline) throw new Error(`${model} does not answer: ${answer.message}`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  /** Prometheus text; the path is outside the API's base. */
  async metrics(): Promise<string> {
    const headers = { authorization: `Bearer ${this.key}` };
    const response = await fetch(`${this.url}/metrics`, { headers });
    if (!response.ok) throw new Error(`GET /metrics answered ${response.status}`);
    return response.text();
  }

  async get(path: string): Promise<unknown> {
    return this.#call("GET", path);
  }

  async #call(method: string, path: string, body?: object): Promise<unknown> {
    const response = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
      signal: AbortSignal.timeout(60_000),
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }
}
