import { type LookupAddress, type LookupOptions, lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";
import { isLoopback } from "@heddle/base/network-address";
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
    if (isIP(host) && !this.#explicit.has(host)) checkAddress(host, host);
  }

  /**
   * Resolves a host as node:http asks, refusing addresses within a private network. The connection
   * goes to the address that was checked, so a name cannot change its mind in between.
   */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    const all: LookupOptions & { all: true } = { ...options, all: true };
    lookup(hostname, all, (error, addresses) => {
      const refusal = error ?? this.#refusalOf(hostname, addresses);
      const [first] = addresses ?? [];
      if (refusal || !first) return callback(refusal ?? new Error("no address"), "", 0);
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };

  #refusalOf(hostname: string, addresses: readonly LookupAddress[]): Error | undefined {
    if (this.#explicit.has(hostname.toLowerCase())) return undefined;
    try {
      for (const { address } of addresses) checkAddress(hostname, address);
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }
}

function hostOf(url: URL): string {
  return url.hostname.toLowerCase().replace(/^\[|\]$/g, "");
}

function matches(pattern: string, host: string): boolean {
  return pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) : host === pattern;
}

function checkAddress(host: string, address: string): void {
  if (!NOT_PUBLIC.check(address, isIP(address) === 6 ? "ipv6" : "ipv4")) return;
  throw new PermanentFault(
    `${host} is at ${address}, which is not a public address; add the host itself to the allowed hosts if that is meant`,
  );
}

/** Special-purpose ranges of IANA's registries (RFC 6890), clouds' metadata services among them. */
const NOT_PUBLIC = new BlockList();
for (const range of [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "::/127",
  "64:ff9b::/96",
  "64:ff9b:1::/48",
  "100::/64",
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "fc00::/7",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
]) {
  const [net = "", bits] = range.split("/");
  NOT_PUBLIC.addSubnet(net, Number(bits), net.includes(":") ? "ipv6" : "ipv4");
}
