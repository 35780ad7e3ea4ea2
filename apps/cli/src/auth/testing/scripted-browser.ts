/** Follows redirects and fills in forms, with cookies, as a user's browser. */
export class ScriptedBrowser {
  readonly #cookies = new Map<string, string>();

  /** The last page; at most 20 redirects. */
  async open(address: string, body?: URLSearchParams): Promise<string> {
    let [url, form] = [address, body];
    for (let i = 0; i < 20; i++) {
      const response = await fetch(url, {
        redirect: "manual",
        method: form ? "POST" : "GET",
        headers: { cookie: [...this.#cookies.values()].join("; ") },
        ...(form && { body: form }),
      });
      for (const cookie of response.headers.getSetCookie()) {
        const [pair = ""] = cookie.split(";");
        this.#cookies.set(pair.split("=")[0] ?? "", pair);
      }
      const next = response.headers.get("location");
      if (next === null) return response.text();
      await response.body?.cancel();
      [url, form] = [new URL(next, url).href, undefined];
    }
    throw new Error("the pages redirect in a circle");
  }

  /** Confirms the page's form with its hidden fields and these. */
  submit(address: string, page: string, fields: Record<string, string>): Promise<string> {
    const form = new URLSearchParams(fields);
    for (const [input] of page.matchAll(/<input[^>]*type="hidden"[^>]*>/g)) {
      const value = (name: string) => new RegExp(`${name}="([^"]*)"`).exec(input)?.[1] ?? "";
      if (!form.has(value("name"))) form.set(value("name"), value("value"));
    }
    return this.open(address, form);
  }
}
