// holds: api-responses-masters

import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { readServerSentEvents, SILENCE_MS } from "@heddle/client/server-sent-events";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// Responses of three masters as processes, with answers that take time.

const [FIRST, SECOND, THIRD] = ["master-1", "master-2", "master-3"] as const;
const MODEL = "FamilyA-1-2B";
const TOKEN_DELAY_MS = 50;

type Event = OpenAI.Responses.ResponseStreamEvent;

let group: MasterGroup;

beforeAll(async () => {
  const env = { SCRIPT_TOKEN_DELAY_MS: String(TOKEN_DELAY_MS) };
  group = new MasterGroup(3, [], () => ({ env }));
  await group.startAll();
  await group.leader();
  // A new cluster's version rises when its masters have met.
  await eventually(() =>
    on(FIRST)
      .conversations.create({})
      .then(
        () => true,
        () => false,
      ),
  );
});
afterAll(() => group?.close());

const on = (name: string) =>
  new OpenAI({ baseURL: `${group.url(name)}/api/v1`, apiKey: group.adminKey, maxRetries: 3 });

const hello = { model: MODEL, input: "one two three" };
const inBackground = (tokens: number) => ({
  ...hello,
  background: true,
  stream: true as const,
  max_output_tokens: tokens,
});

/** Begins a response in the background on a master, and hangs up. */
async function begin(name: string, tokens: number): Promise<string> {
  const stream = await on(name).responses.create(inBackground(tokens));
  for await (const event of stream) {
    if (event.type === "response.created") return event.response.id;
  }
  throw new Error("the stream has no begin");
}

/** The events of a response as a master streams them, until `enough`. */
async function eventsOn(
  name: string,
  id: string,
  after: number,
  enough: (event: Event) => boolean = () => false,
): Promise<Event[]> {
  const query = after < 0 ? "" : `&starting_after=${after}`;
  const hangUp = new AbortController();
  const reply = await fetch(`${group.url(name)}/api/v1/responses/${id}?stream=true${query}`, {
    headers: { authorization: `Bearer ${group.adminKey}` },
    signal: hangUp.signal,
  });
  expect(reply.status).toBe(200);
  const events: Event[] = [];
  for await (const { data } of readServerSentEvents(reply.body!, SILENCE_MS)) {
    if (data === "") continue;
    events.push(JSON.parse(data) as Event);
    if (enough(events.at(-1)!)) break;
  }
  hangUp.abort();
  return events;
}

const textOf = (events: readonly Event[]) =>
  events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");

describe("responses of three masters: stored ones", () => {
  it("are read, continued, paged and deleted through any of them", async () => {
    const created = await on(FIRST).responses.create(hello);
    expect(await on(SECOND).responses.retrieve(created.id)).toEqual(created);
    const next = await on(THIRD).responses.create({
      ...hello,
      input: "four",
      previous_response_id: created.id,
    });
    expect(next.usage?.input_tokens).toBeGreaterThan(created.usage?.input_tokens ?? 0);
    const items = (await on(SECOND).responses.inputItems.list(created.id)).data;
    expect(items).toMatchObject([{ content: [{ text: "one two three" }] }]);
    await on(THIRD).responses.delete(created.id);
    for (const name of group.names) {
      await expect(on(name).responses.retrieve(created.id)).rejects.toMatchObject({ status: 404 });
    }
    const broken = { ...hello, previous_response_id: next.id };
    await expect(on(FIRST).responses.create(broken)).rejects.toMatchObject({
      code: "previous_response_not_found",
    });
  });

  it("form a chain of 50 over all masters, and a conversation", async () => {
    const conversation = await on(FIRST).conversations.create({});
    let previous_response_id: string | null = null;
    for (let link = 0; link < 50; link++) {
      const name = group.names[link % 3] as string;
      const { id }: { id: string } = await on(name).responses.create({
        ...hello,
        input: `link${link}`,
        max_output_tokens: 1,
        previous_response_id,
      });
      previous_response_id = id;
    }
    const counted = await on(SECOND).responses.inputTokens.count({
      ...hello,
      previous_response_id: previous_response_id!,
    });
    expect(counted.input_tokens).toBeGreaterThanOrEqual(100);
    for (const name of group.names) {
      await on(name).responses.create({ ...hello, conversation: conversation.id });
    }
    const items = await on(SECOND).conversations.items.list(conversation.id);
    expect(items.data).toHaveLength(6);
  });
});

describe("responses of three masters: those in the background", () => {
  it("are followed live through other masters, and resumed there without a gap", async () => {
    const id = await begin(FIRST, 1_500);
    const live = await eventsOn(SECOND, id, -1, (event) => event.sequence_number >= 12);
    const during = await on(THIRD).responses.retrieve(id);
    expect(during.status).toBe("in_progress");
    const rest = await eventsOn(THIRD, id, 12);
    const numbers = [...live, ...rest].map((event) => event.sequence_number);
    expect(numbers).toEqual(numbers.map((_number, i) => i));
    expect(rest.at(-1)?.type).toBe("response.incomplete");
    const stored = await on(SECOND).responses.retrieve(id);
    expect(textOf([...live, ...rest])).toBe(stored.output_text);
    expect(await eventsOn(SECOND, id, -1)).toEqual([...live, ...rest]);
  });

  it("are cancelled through another master, whose readers see the same end", async () => {
    const id = await begin(FIRST, 10_000);
    const reading = held(eventsOn(FIRST, id, -1));
    await eventsOn(SECOND, id, -1, ({ type }) => type === "response.output_text.delta");
    expect((await on(THIRD).responses.cancel(id)).status).toBe("cancelled");
    const events = await reading;
    expect(events.at(-1)).toMatchObject({ response: { status: "cancelled" } });
    expect((await on(FIRST).responses.retrieve(id)).status).toBe("cancelled");
  });

  it("have failed with a reason when their master is killed, for those who resume too", async () => {
    const id = await begin(FIRST, 10_000);
    const killed: Promise<void>[] = [];
    const events = await eventsOn(SECOND, id, -1, ({ sequence_number: number, type }) => {
      if (number === 20) killed.push(held(group.end(FIRST, "SIGKILL")));
      return type === "response.failed";
    });
    await Promise.all(killed);
    expect(events.at(-1)).toMatchObject({
      response: { status: "failed", error: { message: expect.stringMatching(/was lost/) } },
    });
    expect((await on(THIRD).responses.retrieve(id)).status).toBe("failed");
    const [resumed, ...more] = await eventsOn(THIRD, id, 20);
    expect(resumed).toMatchObject({ type: "response.failed", sequence_number: 21 });
    expect(more).toEqual([]);
    await group.start(FIRST);
    expect((await on(FIRST).responses.retrieve(id)).status).toBe("failed");
  });
});
