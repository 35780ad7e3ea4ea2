// holds: api-moderations

import { expect, it } from "vitest";
import { LocalModeration } from "./local-moderation.ts";

const SILENCE_MS = 5_000;

/** A thread that does so at its first order, and answers others with their number. */
function threadThat(does: string): URL {
  const program = `import { parentPort } from "node:worker_threads";
    parentPort.on("message", ({ id }) => {
      if (id === 1) { ${does} } else parentPort.postMessage({ id, scores: [[id]] });
    });`;
  return new URL(`data:text/javascript,${encodeURIComponent(program)}`);
}

it.each([
  ["gives no answer", "", "said nothing for 5 s"],
  ["computes without end", "for (;;) {}", "said nothing for 5 s"],
  ["ends", "process.exit();", "ended"],
  ["throws", 'throw new Error("no text");', "failed: no text"],
])("moderation-local: a thread that %s is replaced", async (_, does, reason) => {
  const local = new LocalModeration(threadThat(does), SILENCE_MS);
  const refused = { code: "unavailable", message: `The thread of moderation ${reason}.` };
  await expect(local.score(["a"])).rejects.toMatchObject(refused);
  expect(await local.score(["b"])).toEqual([[2]]);
  await local.beforeApplicationShutdown();
});
