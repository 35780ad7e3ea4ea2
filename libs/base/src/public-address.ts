import { type LookupAddress, type LookupOptions, lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";

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

/** Whether an IP address is one of the public Internet. */
export function isPublicAddress(address: string): boolean {
  return !NOT_PUBLIC.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");
}

/**
 * Resolves a host as node:http asks, and refuses the addresses that `faultOf` does. The connection
 * goes to the address that was checked, so a name cannot change its mind in between.
 */
export function checkedLookup(
  faultOf: (host: string, address: string) => Error | undefined,
): LookupFunction {
  const refusalOf = (host: string, addresses: readonly LookupAddress[] = []) =>
    addresses.map(({ address }) => faultOf(host, address)).find((fault) => fault !== undefined);
  return (hostname, options, callback) => {
    const all: LookupOptions & { all: true } = { ...options, all: true };
    lookup(hostname, all, (error, addresses) => {
      const refusal = error ?? refusalOf(hostname, addresses);
      const [first] = addresses ?? [];
      if (refusal || !first) return callback(refusal ?? new Error("no address"), "", 0);
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };
}
