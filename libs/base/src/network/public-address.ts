import { type LookupAddress, type LookupOptions, lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";

/** Special-purpose ranges of IANA's registries (RFC 6890), and metadata services of clouds. */
const NOT_PUBLIC = listOf([
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16/32",
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
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "3fff::/20",
]);
/** All else of IPv6 is not routed on the Internet, or contains an address of IPv4. */
const GLOBAL_UNICAST = listOf(["2000::/3"]);

function listOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [net = "", bits] = range.split("/");
    list.addSubnet(net, Number(bits), net.includes(":") ? "ipv6" : "ipv4");
  }
  return list;
}

/** Whether it is an IP address of the public Internet. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !NOT_PUBLIC.check(address, "ipv4");
  if (family !== 6 || address.includes("%")) return false;
  return GLOBAL_UNICAST.check(address, "ipv6") && !NOT_PUBLIC.check(address, "ipv6");
}

/** A resolver of names, as that of node:dns. */
type AllAddresses = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * Resolves a host as node:http asks, and refuses the addresses that `faultOf` does. The connection
 * goes to the address that was checked, so a name cannot change its mind in between.
 */
export function checkedLookup(
  faultOf: (host: string, address: string) => Error | undefined,
  resolve: AllAddresses = lookup,
): LookupFunction {
  const refusalOf = (host: string, addresses: readonly LookupAddress[] = []) =>
    addresses.map(({ address }) => faultOf(host, address)).find((fault) => fault !== undefined);
  return (hostname, options, callback) => {
    const all: LookupOptions & { all: true } = { ...options, all: true };
    resolve(hostname, all, (error, addresses) => {
      const refusal = error ?? refusalOf(hostname, addresses);
      const [first] = addresses ?? [];
      if (refusal || !first) return callback(refusal ?? new Error("no address"), "", 0);
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };
}
