import { BlockList, isIP } from "node:net";
import type { FastifyRequest } from "fastify";

/**
 * Which addresses may say for whom they forward, by X-Forwarded-For and -Proto; undefined for none.
 * `proxies` are addresses and networks, as 10.0.0.7 or fd00::/8.
 */
export function proxyTrust(proxies: readonly string[]): ((address: string) => boolean) | undefined {
  if (proxies.length === 0) return undefined;
  const trusted = new BlockList();
  for (const proxy of proxies) {
    const [address = "", prefix] = proxy.split("/");
    const family = familyOf(address);
    if (prefix === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(prefix), family);
  }
  // What a header names may be no address at all.
  return (address) => isIP(address) !== 0 && trusted.check(address, familyOf(address));
}

/** The client's address: of the connection, or what trusted proxies say. */
export function clientAddress({ ip, raw }: FastifyRequest): string | undefined {
  // The nearest proxy may have passed on a text that is no address.
  const address = ip !== undefined && isIP(ip) !== 0 ? ip : raw.socket.remoteAddress;
  return address?.replace(/^::ffff:(?=\d+\.)/i, "");
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return isIP(address) === 6 ? "ipv6" : "ipv4";
}
