import { isIP } from "node:net";
import { isLoopback } from "@heddle/base/network/network-address";
import { checkedLookup, isPublicAddress } from "@heddle/base/network/public-address";
import { PermanentFault } from "./source-fault.ts";

/** Hosts that weights may come from where the operator names no others. */
const DEFAULT_HOSTS = ["huggingface.co", "*.hf.co"];

/**
 * The hosts that a pull may connect to. A host must be on the allow-list, where `*.` before a name
 * means its subdomains. Its addresses must be public, unless the operator listed that very host.
 */
export class HostPolicy {
  readonly #explicit: ReadonlySet<string>;
  readonly #patterns: readonly string[];

  /** `configured` are the operator's hosts, in addition to the Hugging Face hub's. */
  constructor(configured: readonly string[] = []) {
    const hosts = configured.map((host) => host.toLowerCase());
    this.#explicit = new Set(hosts.filter((host) => !host.startsWith("*.")));
    this.#patterns = [...DEFAULT_HOSTS, ...hosts];
  }

  /** Throws where `url` must not be asked at all. */
  check(url: URL): void {
    const host = hostOf(url);
    if (!this.#patterns.some((pattern) => matches(pattern, host))) {
      throw new PermanentFault(
        `the host ${host} is not on the allow-list; add it to the allowed hosts if you trust it`,
      );
    }
    const plainLoopback = url.protocol === "http:" && this.#explicit.has(host) && isLoopback(host);
    if (url.protocol !== "https:" && !plainLoopback) {
      throw new PermanentFault(`${url.protocol}// is not allowed for ${host}; use https://`);
    }
    const fault = isIP(host) && !this.#explicit.has(host) ? addressFault(host, host) : undefined;
    if (fault) throw fault;
  }

  /** Refuses addresses within a private network, but of hosts that the operator listed. */
  readonly lookup = checkedLookup((host, address) =>
    this.#explicit.has(host.toLowerCase()) ? undefined : addressFault(host, address),
  );
}

function hostOf(url: URL): string {
  return url.hostname.toLowerCase().replace(/^\[|\]$/g, "");
}

function matches(pattern: string, host: string): boolean {
  return pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) : host === pattern;
}

function addressFault(host: string, address: string): PermanentFault | undefined {
  if (isPublicAddress(address)) return undefined;
  return new PermanentFault(
    `${host} is at ${address}, which is not a public address; add the host itself to the allowed hosts if that is meant`,
  );
}
