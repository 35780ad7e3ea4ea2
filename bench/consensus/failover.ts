import { setTimeout as delay } from "node:timers/promises";
import type { KvClient } from "./kv-client.ts";
import type { StoreCluster } from "./store-cluster.ts";

const value = Buffer.alloc(256, "f");
/** A put is sent to each member that is left this often until one is answered. */
const tryEveryMs = 20;
const giveUpMs = 30_000;
/** A put is sent this often while leadership changes hands. */
const putEveryMs = 5;
const settleMs = 300;

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

/**
 * Has the leader hand over, while puts go to the member that takes over; resolves with the longest
 * time in which none of them was answered: how long writes stood still for a client.
 */
export async function measureTransfer(cluster: StoreCluster): Promise<number> {
  const leader = await cluster.leader();
  const to = cluster.members.find((member) => member !== leader) as number;
  const client = cluster.kind.connect(to);
  await client.put("before", value);
  let lastAnswerMs = performance.now();
  let longestMs = 0;
  let newestAnsweredMs = 0;
  const puts = setInterval(() => {
    const sentMs = performance.now();
    const answered = () => {
      const nowMs = performance.now();
      longestMs = Math.max(longestMs, nowMs - lastAnswerMs);
      lastAnswerMs = nowMs;
      newestAnsweredMs = Math.max(newestAnsweredMs, sentMs);
    };
    client.put("during", value).then(answered, () => undefined);
  }, putEveryMs);
  try {
    await delay(settleMs);
    longestMs = 0;
    await cluster.kind.transfer(leader, to);
    const deadline = performance.now() + giveUpMs;
    const pastDeadline = () => performance.now() > deadline;
    while (!(await cluster.kind.view(to)).leads) {
      if (pastDeadline()) throw new Error(`${cluster.name} did not hand over`);
      await delay(2);
    }
    const ledMs = performance.now();
    while (newestAnsweredMs < ledMs) {
      if (pastDeadline()) throw new Error(`${cluster.name} took no put after it handed over`);
      await delay(2);
    }
    return longestMs;
  } finally {
    clearInterval(puts);
    client.close();
    await delay(settleMs);
  }
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
