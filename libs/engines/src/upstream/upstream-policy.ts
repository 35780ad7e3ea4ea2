import type { LookupFunction } from "node:net";
import { AppError } from "@heddle/base/errors";
import { HostPolicy } from "../weights/host-policy.ts";

/**
 * The servers that a worker may ask: their origins, as its administrator lists them. `https://*.NAME`
 * means its subdomains, whose addresses must be public; other origins may be anywhere.
 */
export class UpstreamPolicy {
  readonly #origins: ReadonlySet<string>;
  readonly #suffixes: readonly string[];
  readonly #hosts: HostPolicy;

  /** Throws `invalid_value` for what is no origin. */
  constructor(origins: readonly string[]) {
    const wild = origins.filter((origin) => origin.startsWith("https://*."));
    const exact = origins.filter((origin) => !wild.includes(origin)).map(checkedOrigin);
    this.#origins = new Set(exact);
    this.#suffixes = wild.map((origin) => origin.slice("https://*".length).toLowerCase());
    this.#hosts = new HostPolicy(exact.map((origin) => hostOf(new URL(origin))));
  }

  /** Throws `invalid_value` where the server must not be asked. */
  check(url: URL): void {
    if (this.#origins.has(url.origin)) return;
    const isPlain = url.protocol === "https:" && url.port === "";
    if (isPlain && this.#suffixes.some((suffix) => url.hostname.endsWith(suffix))) return;
    const message = `this worker may not ask ${url.origin}: its administrator has to list that origin (--upstreams)`;
    throw new AppError("invalid_value", message, { param: "engine.base_url" });
  }

  /** Resolves names for connections, and refuses private addresses of subdomains. */
  get lookup(): LookupFunction {
    return this.#hosts.lookup;
  }
}

/** Throws `invalid_value` where the text is no scheme with a host. */
export function checkedOrigin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isHttp = url?.protocol === "https:" || url?.protocol === "http:";
  if (url && isHttp && `${url.origin}/` === url.href) return url.origin;
  throw new AppError("invalid_value", `${text} is not an origin such as https://api.openai.com`);
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, "");
}
