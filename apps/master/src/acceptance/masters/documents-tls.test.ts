// holds: documents-replicated

import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

const [FIRST, SECOND, THIRD] = ["master-1", "master-2", "master-3"] as const;
const ASKED = { model: "FamilyA-1-2B", input: "one two three", max_output_tokens: 16 };

let group: MasterGroup;
beforeAll(async () => {
  group = new MasterGroup(1, ["--tls"]);
  await group.startAll();
});
afterAll(() => group?.close());

/** Stores responses through all running masters until `stop` is called, which returns their ids. */
function storeContinuously() {
  const ids: string[] = [];
  let isOver = false;
  const storing = (async () => {
    for (let turn = 0; !isOver; turn++) {
      const { runningNames: names } = group;
      const name = names[turn % names.length] ?? FIRST;
      // One that is being removed refuses, and hangs up.
      const reply = await group.request(name, "POST", "/api/v1/responses", ASKED).catch(() => null);
      if (reply?.status === 200) ids.push(((await reply.json()) as { id: string }).id);
      else if (reply) expect(reply.status, await reply.text()).toBe(503);
    }
  })();
  const stop = async () => {
    isOver = true;
    await storing;
    return ids;
  };
  return { ids, stop };
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
  const { ids, stop } = storeContinuously();
  await eventually(() => ids.length > 0);
  await group.start(THIRD);
  await votes(THIRD, FIRST);
  const before = ids.length;
  await eventually(() => ids.length > before + 5);
  const ended = group.ending(FIRST);
  await group.change(SECOND, "DELETE", `/api/v1/cluster/masters/${FIRST}`);
  await ended;
  const after = ids.length;
  await eventually(() => ids.length > after + 5);
  const all = await stop();
  for (const name of [SECOND, THIRD]) {
    for (const id of all) {
      const reply = await group.request(name, "GET", `/api/v1/responses/${id}`);
      expect(reply.status, `${id} on ${name}: ${await reply.clone().text()}`).toBe(200);
    }
  }
});
