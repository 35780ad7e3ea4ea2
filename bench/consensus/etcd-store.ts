import { spawnSync } from "node:child_process";
import { EtcdClient } from "./etcd-client.ts";
import type { StoreKind } from "./store-cluster.ts";

/** The version line of this machine's etcd, or undefined if there is none. */
export function etcdVersion(): string | undefined {
  const { status, stdout } = spawnSync("etcd", ["--version"], { encoding: "utf8" });
  return status === 0 ? stdout.split("\n")[0] : undefined;
}

/** etcd as Debian has it, with its default timeouts (heartbeat 100 ms, election 1 s). */
export function etcdStore(folder: string, firstPort: number): StoreKind {
  const url = (port: number) => `http://127.0.0.1:${port}`;
  const peer = (member: number) => url(firstPort + 10 + member);
  const client = (member: number) => firstPort + member;
  const address = (member: number) => `127.0.0.1:${client(member)}`;
  const ask = async <T>(member: number, question: (client: EtcdClient) => Promise<T>) => {
    const asking = new EtcdClient(address(member));
    try {
      return await question(asking);
    } finally {
      asking.close();
    }
  };
  return {
    name: "etcd",
    command: (member) => ({
      command: "etcd",
      args: [
        "--name",
        `e${member}`,
        "--data-dir",
        `${folder}/${member}`,
        "--listen-peer-urls",
        peer(member),
        "--initial-advertise-peer-urls",
        peer(member),
        "--listen-client-urls",
        url(client(member)),
        "--advertise-client-urls",
        url(client(member)),
        "--initial-cluster",
        [1, 2, 3].map((each) => `e${each}=${peer(each)}`).join(","),
        "--logger",
        "zap",
        "--log-level",
        "error",
      ],
    }),
    address,
    view: (member) => ask(member, (asked) => asked.status()),
    transfer: async (leader, to) => {
      const { id } = await ask(to, (asked) => asked.status());
      await ask(leader, (asked) => asked.moveLeader(id));
    },
    connect: (member) => new EtcdClient(address(member)),
  };
}
