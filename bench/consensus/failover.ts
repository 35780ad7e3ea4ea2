import { setTimeout as delay } from "node:timers/promises";
import type { KvClient } from "./kv-client.ts";
import type { StoreCluster } from "./store-cluster.ts";

const value = Buffer.alloc(256, "f");
/** Interval of puts to each remaining member until one is answered. */
const tryEveryMs = 20;
const giveUpMs = 30_000;
/** Interval of puts during a change of leadership. */
const putEveryMs = 5;
const settleMs = 300;

/**
 * Kills the leader with `kill -9`. Resolves with the time from the kill to the first answer to a
 * later put, on any member. The member is restarted afterwards.
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
 * Transfers leadership while puts go to the next leader. Resolves with the longest time without an
 * answer: the clients' write outage.
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
    while (!(await cluster.kind.view(to)).isLeader) {
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
