import { Browser } from "@heddle/auth/oidc/testing/browser";

const MAX_PAGES = 20;

/** A person with a browser, who signs in and agrees on Keycloak's pages. */
export class KeycloakUser {
  readonly browser = new Browser();
  readonly #name: string;
  readonly #password: string;

  constructor(name: string, password: string) {
    this.#name = name;
    this.#password = password;
  }

  /** Opens the address, and does what the pages ask. Returns the address of the last page. */
  async open(address: string): Promise<string> {
    let [url, form] = [address, undefined as URLSearchParams | undefined];
    for (let page = 0; page < MAX_PAGES; page++) {
      const reply = await this.browser.ask(url, form ? { method: "POST", body: form } : {});
      const next = reply.headers.get("location");
      const text = await reply.text();
      if (next !== null) [url, form] = [new URL(next, url).href, undefined];
      else {
        const action = /<form[^>]* action="([^"]+)"/.exec(text)?.[1]?.replaceAll("&amp;", "&");
        form = this.#answer(text);
        if (action === undefined || form === undefined) return url;
        url = new URL(action, url).href;
      }
    }
    throw new Error(`the pages have no end; the last is ${url}`);
  }

  #answer(page: string): URLSearchParams | undefined {
    if (page.includes('id="kc-form-login"')) {
      return new URLSearchParams({ username: this.#name, password: this.#password });
    }
    const code = /name="code" value="([^"]+)"/.exec(page)?.[1];
    if (!page.includes('name="accept"') || code === undefined) return undefined;
    return new URLSearchParams({ code, accept: "Yes" });
  }
}
