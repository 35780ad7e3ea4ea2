// holds: ssrf-addresses

import { once } from "node:events";
import { createServer, get, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { checkedLookup, isPublicAddress } from "./public-address.ts";

const PRIVATE: readonly (readonly [string, ...string[]])[] = [
  ["unspecified", "0.0.0.0", "0.1.2.3", "::"],
  ["loopback", "127.0.0.1", "127.255.255.254", "::1", "::2"],
  ["private networks", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fd00::1"],
  ["carriers", "100.64.0.1", "100.127.255.255"],
  ["link-local", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1"],
  ["metadata services", "169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"],
  ["IPv4 in IPv6, mapped", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:1.1.1.1"],
  ["IPv4 in IPv6, compatible", "::127.0.0.1", "::a9fe:a9fe"],
  ["IPv4 in IPv6, translated", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "::ffff:0:7f00:1"],
  ["IPv4 in IPv6, tunnels", "2002:7f00:1::", "2001:0:7f00:1::", "fe80::5efe:7f00:1"],
  ["documentation", "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
  ["multicast and reserved", "224.0.0.1", "255.255.255.255", "ff02::1", "4000::1", "100::1"],
  ["no address", "", "example.com", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]"],
];

it.each(PRIVATE)("addresses: %s are not public", (_, ...addresses) => {
  for (const address of addresses) expect(isPublicAddress(address), address).toBe(false);
});

it("addresses: others are public", () => {
  const addresses = ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "128.0.0.1"];
  addresses.push("169.253.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1", "223.255.255.255");
  addresses.push("2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2003::1");
  for (const address of addresses) expect(isPublicAddress(address), address).toBe(true);
});

const [ALLOWED, REFUSED] = ["127.0.0.2", "127.0.0.1"];
const asked: string[] = [];
const servers: Server[] = [];
let port = 0;
beforeAll(async () => {
  for (const address of [ALLOWED, REFUSED]) {
    const server = createServer((_, reply) => {
      asked.push(address);
      reply.end(address);
    });
    servers.push(server);
    await once(server.listen(port, address), "listening");
    port = (server.address() as AddressInfo).port;
  }
});
afterAll(() => {
  for (const server of servers) server.close();
});

/** A name whose addresses change with each question, as a rebinding attacker's does. */
function changing(...answers: readonly (readonly string[])[]) {
  let questions = 0;
  const lookup = checkedLookup(
    (host, address) => (address === REFUSED ? new Error(`${host} is at ${address}`) : undefined),
    (_, __, callback) => {
      const addresses = answers[questions++ % answers.length] ?? [];
      callback(
        null,
        addresses.map((address) => ({ address, family: 4 })),
      );
    },
  );
  return { lookup, questions: () => questions };
}

async function fetched(lookup: ReturnType<typeof checkedLookup>): Promise<string> {
  const request = get({ host: "rebind.example", port, lookup, agent: false });
  const [reply] = await once(request, "response");
  let text = "";
  for await (const piece of reply) text += String(piece);
  return text;
}

it("a name that changes: the connection goes to the address that was checked", async () => {
  const name = changing([ALLOWED], [REFUSED]);
  expect(await fetched(name.lookup)).toBe(ALLOWED);
  expect(name.questions()).toBe(1);
  await expect(fetched(name.lookup)).rejects.toThrow(`rebind.example is at ${REFUSED}`);
  expect(await fetched(name.lookup)).toBe(ALLOWED);
  expect(asked).not.toContain(REFUSED);
});

it("a name of several addresses: one that is refused is enough, wherever it is", async () => {
  for (const addresses of [
    [ALLOWED, REFUSED],
    [REFUSED, ALLOWED],
  ]) {
    await expect(fetched(changing(addresses).lookup)).rejects.toThrow(REFUSED);
  }
  await expect(fetched(changing([]).lookup)).rejects.toThrow("no address");
  expect(asked).not.toContain(REFUSED);
});
