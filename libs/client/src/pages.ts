import type { Page } from "@heddle/contracts/api/parameters";
import type { CallOptions, HttpTransport, Query } from "./transport.ts";

/** A list that is fetched page by page: `for await (const job of list)`. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #transport: HttpTransport;
  readonly #path: string;
  readonly #query: Query;
  readonly #options: CallOptions;

  constructor(transport: HttpTransport, path: string, query: Query, options: CallOptions = {}) {
    this.#transport = transport;
    this.#path = path;
    this.#query = query;
    this.#options = options;
  }

  /** The page at the cursor, or the first one. */
  page(cursor?: string): Promise<Page<T>> {
    const query = { ...this.#query, ...(cursor === undefined ? {} : { cursor }) };
    const { signal } = this.#options;
    return this.#transport.json<Page<T>>({ method: "GET", path: this.#path, query, signal });
  }

  /** Whole pages. */
  async *pages(): AsyncGenerator<Page<T>, void> {
    let page = await this.page();
    yield page;
    while (page.next_cursor) {
      page = await this.page(page.next_cursor);
      yield page;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
    for await (const page of this.pages()) yield* page.data;
  }
}
