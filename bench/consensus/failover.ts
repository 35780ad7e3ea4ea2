import { setTimeout as delay } from "node:timers/promises";
import type { KvClient } from "./kv-client.ts";
import type { StoreCluster } from "./store-cluster.ts";

const value = Buffer.alloc(256, "f");
/** A put is sent to each member that is left this often until one is answered. */
const tryEveryMs = 20;
const giveUpMs = 30_000;

/**
 * Kills the leader as `kill -9` does and resolves with the time from the kill to the first answer to
 * a put that was sent after it, whichever member took it. The member is started again afterwards.
 */
export async function measureFailover(cluster: StoreCluster): Promise<number> {
  const leader = await cluster.leader();
  const survivors = cluster.members.filter((member) => member !== leader);
  const clients = survivors.map((member) => cluster.kind.connect(member));
  await Promise.all(clients.map((client) => client.put("before", value)));
  const killedMs = performance.now();
  cluster.kill(leader);
  try {
    await firstAnswer(clients);
    return performance.now() - killedMs;
  } finally {
    for (const client of clients) client.close();
    cluster.startMember(leader);
    await cluster.leader();
    await delay(300);
  }
}

/** Has the leader hand over; resolves with the time until a put is answered under the new one. */
export async function measureTransfer(cluster: StoreCluster): Promise<number> {
  const leader = await cluster.leader();
  const to = cluster.members.find((member) => member !== leader) as number;
  const client = cluster.kind.connect(to);
  await client.put("before", value);
  const askedMs = performance.now();
  await cluster.kind.transfer(leader, to);
  const deadline = askedMs + giveUpMs;
  while (!(await cluster.kind.view(to)).leads) {
    if (performance.now() > deadline) throw new Error(`${cluster.name} did not hand over`);
    await delay(2);
  }
  await client.put("after", value);
  const tookMs = performance.now() - askedMs;
  client.close();
  await delay(300);
  return tookMs;
}

async function firstAnswer(clients: readonly KvClient[]): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const sendAll = () => {
    for (const client of clients) client.put("after", value).then(resolve, () => undefined);
  };
  const tries = setInterval(sendAll, tryEveryMs);
  const late = setTimeout(() => reject(new Error("no member answered a put")), giveUpMs);
  sendAll();
  try {
    await promise;
  } finally {
    clearInterval(tries);
    clearTimeout(late);
  }
}
