import { setTimeout as sleep } from "node:timers/promises";
import type { Heddle } from "@heddle/client/heddle";
import { untilAnswered } from "./until-answered.ts";

const DEADLINE_SECONDS = 20;
const TRIES = 60;

/** Drains one worker at a time and takes it back, until the signal aborts. Returns how many. */
export async function drainLoad(
  heddle: Heddle,
  random: () => number,
  signal: AbortSignal,
): Promise<number> {
  let drains = 0;
  while (!signal.aborted) {
    await sleep(DEADLINE_SECONDS * 1_000, undefined, { signal }).catch(() => {});
    if (signal.aborted) break;
    const nodes = await untilAnswered(TRIES, () => heddle.workers.list());
    const workers = nodes.filter(({ kind }) => kind === "worker");
    const worker = workers[Math.floor(random() * workers.length)];
    if (!worker) continue;
    const how = { deadlineSeconds: DEADLINE_SECONDS };
    await untilAnswered(TRIES, () => heddle.workers.drain(worker.id, how));
    drains += 1;
    await sleep(DEADLINE_SECONDS * 1_000, undefined, { signal }).catch(() => {});
    await untilAnswered(TRIES, () => heddle.workers.resume(worker.id));
  }
  return drains;
}
