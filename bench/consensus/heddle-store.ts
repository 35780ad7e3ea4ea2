import { fileURLToPath } from "node:url";
import { HeddleClient, queryMember } from "./heddle-client.ts";
import type { StoreKind } from "./store-cluster.ts";

const program = fileURLToPath(new URL("./member.ts", import.meta.url));

/** Our members: `member.ts` with data below the folder and gRPC servers from a port on. */
export function heddleStore(
  folder: string,
  firstPort: number,
  { snapshotEntries = 100_000, nodeFlags = [] as readonly string[] } = {},
): StoreKind {
  const port = (member: number) => firstPort + member - 1;
  const ports = [1, 2, 3].map(port).join(",");
  const address = (member: number) => `127.0.0.1:${port(member)}`;
  return {
    name: "heddle",
    command: (member) => ({
      command: process.execPath,
      args: [
        ...nodeFlags,
        program,
        String(member),
        ports,
        `${folder}/${member}`,
        String(snapshotEntries),
      ],
    }),
    address,
    view: (member) => queryMember(address(member), "status"),
    transfer: async (leader, to) => {
      await queryMember(address(leader), `transfer ${to}`);
    },
    connect: (member) => new HeddleClient(address(member)),
  };
}
