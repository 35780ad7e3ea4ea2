/** A browser without a page: it keeps cookies, and follows redirects itself. */
export class Browser {
  readonly #jars = new Map<string, Map<string, string>>();
  readonly set: string[] = [];
  /** The addresses that were asked, in their order. */
  readonly visited: string[] = [];

  cookies(host: string): string {
    return [...(this.#jars.get(host) ?? [])].map(([name, value]) => `${name}=${value}`).join("; ");
  }

  async ask(url: string, init: RequestInit = {}): Promise<Response> {
    const { host } = new URL(url);
    this.visited.push(url);
    const headers = new Headers(init.headers);
    if (this.cookies(host)) headers.set("cookie", this.cookies(host));
    const reply = await fetch(url, { ...init, headers, redirect: "manual" });
    const jar = this.#jars.get(host) ?? new Map<string, string>();
    this.#jars.set(host, jar);
    for (const cookie of reply.headers.getSetCookie()) {
      this.set.push(cookie);
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      if (value === "" || /max-age=0|expires=Thu, 01 Jan 1970/i.test(cookie)) jar.delete(name);
      else jar.set(name, value);
    }
    return reply;
  }

  /** The address at which the redirects end. */
  async follow(url: string): Promise<string> {
    let at = url;
    for (let i = 0; i < 12; i++) {
      const reply = await this.ask(at);
      const next = reply.headers.get("location");
      await reply.body?.cancel();
      if (!next) return at;
      at = new URL(next, at).href;
    }
    throw new Error(`redirected without an end, last to ${at}`);
  }
}
