// holds: documents-replicated

import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

const [FIRST, SECOND, THIRD] = ["master-1", "master-2", "master-3"] as const;
const ASKED = { model: "FamilyA-1-2B", input: "one two three", max_output_tokens: 16 };

let group: MasterGroup;
let storing: ReturnType<typeof storeContinuously>;
beforeEach(async () => {
  group = new MasterGroup(1, ["--tls"]);
  await group.startAll();
});
afterEach(async () => {
  await storing?.stop();
  await group.close();
});

/** Stores responses through all running masters until `stop` is called. */
function storeContinuously() {
  const ids: string[] = [];
  const failures: string[] = [];
  let isEnded = false;
  const storeOne = async (name: string) => {
    const reply = await group.request(name, "POST", "/api/v1/responses", ASKED);
    const text = await reply.text();
    if (reply.status === 200) ids.push((JSON.parse(text) as { id: string }).id);
    else if (reply.status !== 503) failures.push(`${reply.status}: ${text}`);
  };
  const storing = (async () => {
    for (let turn = 0; !isEnded; turn++) {
      const { runningNames: names } = group;
      // One that is being removed refuses, and hangs up, also within a reply.
      await storeOne(names[turn % names.length] ?? FIRST).catch(() => undefined);
    }
  })();
  const stop = async () => {
    isEnded = true;
    await storing;
  };
  return { ids, failures, stop };
}

async function votes(name: string, through: string): Promise<void> {
  await eventually(async () => {
    const { masters } = await group.status(through);
    return masters.some(({ id, role }) => id === name && role !== "learner");
  }, `${name} votes`);
}

it("documents: under TLS all survive masters that join and leave meanwhile", {
  timeout: 300_000,
}, async () => {
  // What a single voter stored is on its disk alone until the others have fetched it.
  await group.start(SECOND);
  await votes(SECOND, FIRST);
  storing = storeContinuously();
  const { ids, failures } = storing;
  await eventually(() => ids.length > 0);
  await group.start(THIRD);
  await votes(THIRD, FIRST);
  const before = ids.length;
  await eventually(() => ids.length > before + 5);
  const ended = group.ending(FIRST);
  await eventually(async () => {
    const reply = await group.change(SECOND, "DELETE", `/api/v1/cluster/masters/${FIRST}`);
    // On a slow machine the others may not have fetched all in time: it asks to be tried again.
    if (reply.status !== 409) expect(reply.status, await reply.text()).toBe(200);
    return reply.status === 200;
  }, `${FIRST} is removed`);
  await ended;
  const after = ids.length;
  await eventually(() => ids.length > after + 5);
  await storing.stop();
  expect(failures).toEqual([]);
  for (const name of [SECOND, THIRD]) {
    for (const id of ids) {
      const reply = await group.request(name, "GET", `/api/v1/responses/${id}`);
      expect(reply.status, `${id} on ${name}: ${await reply.clone().text()}`).toBe(200);
    }
  }
});
